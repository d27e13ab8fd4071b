// SPDX-License-Identifier: Apache-2.0

package system

// The pages are true and the files say what they are: links and make targets lead somewhere, snippets are code that compiles,
// quick starts show whole programs, the index has every page, a file opens with its idea, no text knows its author's machine, and
// what faces strangers is bounded: a server that somebody may copy has timeouts, and CI runs actions by their commit.

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

var (
	fence  = regexp.MustCompile("(?ms)^[ \t]*```(\\w*)\n(.*?)^[ \t]*```") //nolint:gocritic // the second ^ begins the line that ends it
	code   = regexp.MustCompile("`[^`\n]*`")
	link   = regexp.MustCompile(`\]\(([^)\s]+)(?:\s+"[^"]*")?\)`)
	placed = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	title  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	// A heading's anchor keeps its letters, digits, hyphens and underscores.
	dropped = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	made    = regexp.MustCompile(`\bmake ([a-z][a-z-]*)`)
	target  = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	// A file of Go opens with a comment, before its package clause or right behind it.
	opens = regexp.MustCompile(`\A(?://go:build.*\n+|// Code generated.*\n+)*(?:// \S|/\*|package \w+\n+(?:import [^)]*\)\n+)?// \S)`)
	// A route of a server or the directory of a test may be called /tmp or /work, a directory in a text may not.
	machine = regexp.MustCompile(`(?:^|[^\w.~/-])/(?:root|home|Users)/\w|(?:proxy|sum)\.golang\.org|registry\.npmjs\.org|deb\.debian\.org`)
	dirs    = regexp.MustCompile(`(?:^|[^\w.~/-])/(?:work|tmp)/\w`)
	server  = regexp.MustCompile(`(?s)[^*]http\.Server\{.*?\}|http\.ListenAndServe(?:TLS)?\(`)
	action  = regexp.MustCompile(`(?m)^\s*-? *uses: *(\S+)`)
	pinned  = regexp.MustCompile(`@[0-9a-f]{40}$`)
)

// anchors are what a link may name behind #: the headings of a page, as GitHub makes them, and what <a id> places.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	text = fence.ReplaceAllString(text, "")
	for _, m := range placed.FindAllStringSubmatch(text, -1) {
		all[m[1]] = true
	}
	for _, m := range title.FindAllStringSubmatch(text, -1) {
		heading := link.ReplaceAllString(strings.TrimSpace(m[1]), "]") // of a link, only its text counts
		name := strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
		unique := name
		for n := 1; all[unique]; n++ {
			unique = fmt.Sprintf("%s-%d", name, n)
		}
		all[unique] = true
	}
	return all
}

// linked are the pages of the repository that a page leads to. It reports the links that lead to no file, or to no place in a
// page.
func linked(t *testing.T, page, text string) (pages []string) {
	t.Helper()
	for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(fence.ReplaceAllString(text, ""), ""), -1) {
		to, anchor, within := strings.Cut(m[1], "#")
		if strings.Contains(to, ":") {
			continue
		}
		file := page
		if to != "" {
			file = path.Join(path.Dir(page), to)
		}
		is, err := os.Stat(filepath.Join(root(t), filepath.FromSlash(file)))
		if err != nil {
			t.Errorf("%s: the link to %s leads nowhere", page, m[1])
			continue
		}
		if is.IsDir() {
			file = path.Join(file, "README.md")
		}
		if pages = append(pages, file); within && path.Ext(file) == ".md" && !anchors(read(t, file))[anchor] {
			t.Errorf("%s: %s has no place %s", page, file, anchor)
		}
	}
	return pages
}

// flat is a text with the indentation of its lines taken away.
func flat(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return "\n" + strings.Join(lines, "\n") + "\n"
}

// snippets are the pieces of Go in a page: what lies between fences, cut at empty lines and at lines that hold only "…".
func snippets(text string) (pieces []string) {
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		if m[1] == "go" {
			pieces = append(pieces, strings.Split(strings.ReplaceAll(flat(m[2]), "\n…\n", "\n\n"), "\n\n")...)
		}
	}
	return slices.DeleteFunc(pieces, func(s string) bool { return strings.TrimSpace(s) == "" })
}

func TestPages(t *testing.T) {
	pages, programs, targets := map[string]string{}, map[string]string{}, map[string]bool{}
	var sources strings.Builder
	for _, m := range target.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	walk(t, func(file string) {
		kind := path.Ext(file)
		if !slices.Contains([]string{".go", ".md", ".mod", ".work", ".yml", ""}, kind) {
			return
		}
		text := read(t, file)
		for line := range strings.Lines(text) {
			if machine.MatchString(line) || kind != ".go" && dirs.MatchString(line) {
				t.Errorf("%s: knows a machine: %s", file, strings.TrimSpace(line))
			}
		}
		for _, m := range action.FindAllStringSubmatch(text, -1) {
			if kind == ".yml" && !pinned.MatchString(m[1]) {
				t.Errorf("%s: %s is not pinned by its commit", file, m[1])
			}
		}
		for _, s := range server.FindAllString(text, -1) {
			for _, timeout := range []string{"ReadHeaderTimeout:", "IdleTimeout:"} { // the others would cut streams
				if !strings.Contains(s, timeout) && !strings.HasPrefix(file, "internal/") && !strings.HasSuffix(file, "_test.go") {
					t.Errorf("%s: a server without %s %s", file, timeout, s)
				}
			}
		}
		switch kind {
		case ".md":
			pages[file] = text
		case ".go":
			sources.WriteString(flat(text))
			if !opens.MatchString(text) {
				t.Errorf("%s: does not open with a sentence that says what it is for", file)
			}
			if strings.HasPrefix(file, "examples/quickstart/") && path.Base(file) == "main.go" {
				programs[file] = text
			}
		}
	})
	shown := map[string]bool{}
	for page, text := range pages {
		now, _, _ := strings.Cut(text, "\n## Runs\n") // below it stands what was typed when the page was measured
		commands := code.FindAllString(fence.ReplaceAllString(now, ""), -1)
		quick := path.Dir(page) != "docs/quickstart"
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			for file, program := range programs { // a reader copies a program and runs it
				if m[2] == program {
					shown[file], quick = true, true
				}
			}
			if m[1] == "" || m[1] == "sh" || m[1] == "console" {
				commands = append(commands, regexp.MustCompile(`#.*`).ReplaceAllString(m[2], ""))
			}
		}
		if !quick {
			t.Errorf("%s: shows no program of examples/quickstart whole", page)
		}
		for _, m := range made.FindAllStringSubmatch(strings.Join(commands, "\n"), -1) {
			if !targets[m[1]] {
				t.Errorf("%s: the Makefile has no target %s", page, m[1])
			}
		}
		for _, s := range snippets(text) {
			if (page == "README.md" || strings.HasPrefix(page, "docs/")) &&
				!strings.Contains(sources.String(), "\n"+strings.TrimSpace(s)+"\n") {
				t.Errorf("%s: no file of Go has this snippet:\n%s", page, s)
			}
		}
		to := linked(t, page, text)
		if page != "docs/README.md" {
			continue
		}
		for other := range pages {
			if strings.HasPrefix(other, "docs/") && other != page && !slices.Contains(to, other) {
				t.Errorf("%s: does not link %s", page, other)
			}
		}
	}
	for file := range programs {
		if !shown[file] {
			t.Errorf("%s: no page of docs/quickstart shows it whole", file)
		}
	}
}
