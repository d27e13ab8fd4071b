// SPDX-License-Identifier: Apache-2.0

package system

// A reader who copies a page's `go work init` can build what the page shows: README's names every module that any page uses, and
// a quick start's names those of its program.

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var workInit = regexp.MustCompile(`(?m)^go work init \.((?:[ \t]|\\\n|[^\s\\#])*)`)

// workspaceOf are the modules that a `go work init` in text names, relative to the clone; nil: there is no such command.
func workspaceOf(text string) []string {
	m := workInit.FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	var dirs []string
	for dir := range strings.FieldsSeq(strings.ReplaceAll(m[1], "\\\n", " ")) {
		dirs = append(dirs, strings.TrimPrefix(dir, "../stopbank/"))
	}
	return dirs
}

// usedBy are the libraries that a page names, by their import paths or as Go code names their packages.
func usedBy(text string, libraries []string) []string {
	return slices.DeleteFunc(slices.Clone(libraries), func(dir string) bool {
		return !regexp.MustCompile(`\b` + path.Base(dir) + `\b`).MatchString(text)
	})
}

// checkWorkspace reports what the workspace of a page lacks of its modules, and what it names that is no library.
func checkWorkspace(page string, workspace, want, libraries []string) []string {
	var findings []string
	for _, dir := range want {
		if !slices.Contains(workspace, dir) {
			findings = append(findings, fmt.Sprintf("%s: its go work init leaves out %s", page, dir))
		}
	}
	for _, dir := range workspace {
		if !slices.Contains(libraries, dir) {
			findings = append(findings, fmt.Sprintf("%s: its go work init names %s, which is no library of go.work", page, dir))
		}
	}
	return findings
}

// libraries are the modules of go.work that a program can import: what is no example, no part of the laboratory and no command.
func libraries(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(workModules(t), func(dir string) bool {
		_, err := os.Stat(filepath.Join(root(t), dir, "main.go"))
		return err == nil || strings.HasPrefix(dir, "examples") || strings.HasPrefix(dir+"/", "internal/")
	})
}

// importsIn are the modules that the Go of a text imports.
func importsIn(text string, libraries []string) []string {
	return slices.DeleteFunc(slices.Clone(libraries), func(dir string) bool {
		return !slices.ContainsFunc(regexp.MustCompile(regexp.QuoteMeta(project)+`/([\w/]+)`).FindAllStringSubmatch(text, -1),
			func(m []string) bool {
				return moduleOf(m[1], libraries) == dir
			})
	})
}

// moduleOf is the innermost module that holds a package.
func moduleOf(pkg string, libraries []string) (module string) {
	for _, dir := range libraries {
		if (pkg == dir || strings.HasPrefix(pkg, dir+"/")) && len(dir) > len(module) {
			module = dir
		}
	}
	return module
}

func TestWorkspaceCommands(t *testing.T) {
	all := libraries(t)
	readme := read(t, "README.md")
	used, commands := map[string]bool{}, 0
	walk(t, func(file string) {
		if file != "README.md" && (!strings.HasPrefix(file, "docs/") || path.Ext(file) != ".md") {
			return
		}
		text := read(t, file)
		for _, dir := range usedBy(text, all) {
			used[dir] = true
		}
		if path.Dir(file) != "docs/quickstart" {
			return
		}
		for _, part := range strings.Split(text, "\ngo work init ")[1:] { // a page may have several programs
			commands++
			report(t, checkWorkspace(file, workspaceOf("go work init "+part), importsIn(strings.Join(snippets(part), "\n"), all), all))
		}
	})
	want := slices.DeleteFunc(slices.Clone(all), func(dir string) bool { return !used[dir] })
	report(t, checkWorkspace("README.md", workspaceOf(readme), want, all))
	if len(want) < 8 || commands < 5 {
		t.Errorf("the pages use %q, and the quick starts have %d commands: they are not found any more", want, commands)
	}
}
