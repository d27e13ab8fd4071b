// SPDX-License-Identifier: Apache-2.0

package system

// A reader who copies a page's `go work init` can build what the page shows: README's names every module that any page uses, and
// a quick start's names those of its program.

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	workInit = regexp.MustCompile(`(?m)^go work init \.((?:[ \t]|\\\n|[^\s\\#])*)`)
	imported = regexp.MustCompile(regexp.QuoteMeta(project) + `/([\w/]+)`)
)

// checkWorkspace reports what the first `go work init` in text lacks of the modules that it should name, and what it names that is no
// library.
func checkWorkspace(t *testing.T, page, text string, want, libraries []string) {
	t.Helper()
	var named []string
	if m := workInit.FindStringSubmatch(text); m != nil {
		named = strings.Fields(strings.ReplaceAll(m[1], "\\\n", " "))
	}
	for i := range named {
		named[i] = strings.TrimPrefix(named[i], "../stopbank/")
		if !slices.Contains(libraries, named[i]) {
			t.Errorf("%s: its go work init names %s, which is no library of go.work", page, named[i])
		}
	}
	for _, dir := range want {
		if !slices.Contains(named, dir) {
			t.Errorf("%s: its go work init leaves out %s", page, dir)
		}
	}
}

// libraries are the modules of go.work that a program can import: what is no example, no part of the laboratory and no command.
func libraries(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(workModules(t), func(dir string) bool {
		_, err := os.Stat(filepath.Join(root(t), dir, "main.go"))
		return err == nil || strings.HasPrefix(dir, "examples") || strings.HasPrefix(dir+"/", "internal/")
	})
}

// importsIn are the libraries that the Go of a text imports: of each package, the innermost one that holds it.
func importsIn(text string, libraries []string) (all []string) {
	for _, m := range imported.FindAllStringSubmatch(text, -1) {
		dir := m[1]
		for dir != "." && !slices.Contains(libraries, dir) {
			dir = path.Dir(dir)
		}
		if dir != "." {
			all = append(all, dir)
		}
	}
	return all
}

func TestWorkspaceCommands(t *testing.T) {
	all := libraries(t)
	used, commands := map[string]bool{}, 0
	walk(t, func(file string) {
		if file != "README.md" && (!strings.HasPrefix(file, "docs/") || path.Ext(file) != ".md") {
			return
		}
		text := read(t, file)
		for _, dir := range all { // a page names libraries by their import paths, or as Go code names their packages
			used[dir] = used[dir] || regexp.MustCompile(`\b`+path.Base(dir)+`\b`).MatchString(text)
		}
		if path.Dir(file) != "docs/quickstart" {
			return
		}
		for _, part := range strings.Split(text, "\ngo work init ")[1:] { // a page may have several programs
			commands++
			_, shown, _ := strings.Cut(part, "\n```\n") // what follows the command's fence
			checkWorkspace(t, file, "go work init "+part, importsIn(strings.Join(snippets(shown), "\n"), all), all)
		}
	})
	want := slices.DeleteFunc(slices.Clone(all), func(dir string) bool { return !used[dir] })
	checkWorkspace(t, "README.md", read(t, "README.md"), want, all)
	if len(want) < 8 || commands < 5 {
		t.Errorf("the pages use %q, and the quick starts have %d commands: they are not found any more", want, commands)
	}
}
