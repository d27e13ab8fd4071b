package system

// What the repository says about itself is so: links lead somewhere, make targets exist, a file opens with its idea, no
// text knows the machine that it was written on, and a test that sleeps says why.

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link   = regexp.MustCompile(`\]\(([^)\s]+)(?:\s+"[^"]*")?\)`)
	code   = regexp.MustCompile("`[^`]*`")
	made   = regexp.MustCompile(`\bmake ([a-z][a-z-]*)`)
	target = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	placed = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	// A heading's anchor keeps its letters, digits, hyphens and underscores.
	dropped = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	// A route of a server or the directory of a test may be called /tmp or /work, a directory in a text may not.
	home = regexp.MustCompile(`(?:^|[^\w.~/-])/(?:root|home|Users)/\w`)
	dirs = regexp.MustCompile(`(?:^|[^\w.~/-])/(?:work|tmp)/\w`)
	host = regexp.MustCompile(`(?:proxy|sum)\.golang\.org|registry\.npmjs\.org|deb\.debian\.org`)
)

// shells are the fenced blocks of a page that hold commands.
var shells = []string{"```", "```sh", "```console"}

// anchors are what a link may name behind #: the headings of a page, as GitHub makes them, and what <a id> places.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	fenced := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if fenced {
			continue
		}
		for _, m := range placed.FindAllStringSubmatch(line, -1) {
			all[m[1]] = true
		}
		if title := strings.TrimLeft(line, "#"); title != line && strings.HasPrefix(title, " ") {
			title = link.ReplaceAllString(strings.TrimSpace(title), "]") // of a link, only its text counts
			name := strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
			unique := name
			for n := 1; all[unique]; n++ {
				unique = fmt.Sprintf("%s-%d", name, n)
			}
			all[unique] = true
		}
	}
	return all
}

// checkPage reports the links of a Markdown page that lead nowhere, be it to a file or to a place in a page, and the make targets that do
// not exist. Code is no link, and only commands and code in a line name targets. content is that of a file, if there is one.
func checkPage(file, text, makefile string, content func(path string) (string, bool)) []string {
	var findings []string
	targets := map[string]bool{}
	for _, m := range target.FindAllStringSubmatch(makefile, -1) {
		targets[m[1]] = true
	}
	fence := "" // the line that opened the block
	for line := range strings.Lines(text) {
		if trimmed := strings.TrimSpace(line); strings.HasPrefix(trimmed, "```") {
			if fence == "" {
				fence = trimmed
			} else {
				fence = ""
			}
			continue
		}
		var commands []string
		if fence == "" {
			commands = code.FindAllString(line, -1)
		} else if slices.Contains(shells, fence) {
			command, _, _ := strings.Cut(line, "#")
			commands = []string{command}
		}
		for _, command := range commands {
			for _, m := range made.FindAllStringSubmatch(command, -1) {
				if !targets[m[1]] {
					findings = append(findings, fmt.Sprintf("%s: the Makefile has no target %s", file, m[1]))
				}
			}
		}
		if fence != "" {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(line, ""), -1) {
			to, anchor, within := strings.Cut(m[1], "#")
			if strings.Contains(to, ":") {
				continue
			}
			page, exists := text, true
			if to != "" {
				page, exists = content(path.Join(path.Dir(file), to))
			}
			if !exists || within && (to == "" || path.Ext(to) == ".md") && !anchors(page)[anchor] {
				findings = append(findings, fmt.Sprintf("%s: the link to %s leads nowhere", file, m[1]))
			}
		}
	}
	return findings
}

// checkText reports what only the machine of an author can know.
func checkText(file, text string) []string {
	var findings []string
	for line := range strings.Lines(text) {
		if home.MatchString(line) || host.MatchString(line) || path.Ext(file) != ".go" && dirs.MatchString(line) {
			findings = append(findings, fmt.Sprintf("%s: knows a machine: %s", file, strings.TrimSpace(line)))
		}
	}
	return findings
}

// checkGo reports a Go file that does not open with a sentence, before the package clause or right after it, and calls
// of time.Sleep in tests: where time is virtual (the file uses synctest) a sleep costs nothing and is exact; anywhere
// else a comment, on its line or the one above, has to say why nothing better serves.
func checkGo(file, text string) []string {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return []string{err.Error()}
	}
	var findings []string
	if !opens(f) {
		findings = append(findings, file+": does not open with a sentence that says what it is for")
	}
	if !strings.HasSuffix(file, "_test.go") || slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` }) {
		return findings
	}
	said := map[int]bool{}
	for _, group := range f.Comments {
		said[fset.Position(group.End()).Line] = true
	}
	for n := range ast.Preorder(f) {
		if call, ok := n.(*ast.SelectorExpr); ok && call.Sel.Name == "Sleep" {
			of, ok := call.X.(*ast.Ident)
			if at := fset.Position(call.Pos()); ok && of.Name == "time" && !said[at.Line] && !said[at.Line-1] {
				findings = append(findings, at.String()+": time.Sleep in a test, without a word why")
			}
		}
	}
	return findings
}

// opens says whether a comment comes before the first declaration that is neither its docstring nor a directive.
func opens(f *ast.File) bool {
	var doc *ast.CommentGroup
	end := f.FileEnd
	if len(f.Decls) > 0 {
		end = f.Decls[0].Pos()
		switch d := f.Decls[0].(type) {
		case *ast.FuncDecl:
			doc = d.Doc
		case *ast.GenDecl:
			if d.Tok != token.IMPORT {
				doc = d.Doc
			}
		}
	}
	return slices.ContainsFunc(f.Comments, func(group *ast.CommentGroup) bool {
		// Text leaves out directives such as //go:build.
		return group.Pos() < end && group != doc && strings.TrimSpace(group.Text()) != ""
	})
}

// kinds are the texts that are looked at: by extension, or by name.
var kinds = []string{".go", ".md", ".mod", ".work", ".yml", "Makefile", ".ci/run"}

func TestTree(t *testing.T) {
	dir := root(t)
	makefile := read(t, dir, "Makefile")
	content := func(file string) (string, bool) {
		if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(file))); err != nil || path.Ext(file) != ".md" {
			return "", err == nil
		}
		return read(t, dir, file), true
	}
	seen := map[string]int{}
	walk(t, dir, func(file string) {
		kind := path.Ext(file)
		if file == "Makefile" || file == ".ci/run" {
			kind = file
		}
		if !slices.Contains(kinds, kind) {
			return
		}
		seen[kind]++
		text := read(t, dir, file)
		report(t, checkText(file, text))
		switch kind {
		case ".md":
			report(t, checkPage(file, text, makefile, content))
		case ".go":
			report(t, checkGo(file, text))
		}
	})
	for _, kind := range kinds {
		if seen[kind] == 0 {
			t.Errorf("no %s was looked at", kind)
		}
	}
}

func TestTreeFind(t *testing.T) {
	page := "# Page\n[a](admission.md#the-life-of-a-gate), [b](../README.md \"title\"), [c](gone.md) and ![d](gone.svg).\n" +
		"[e](https://example.com/gone.md#x), [f](#page), `m[k](gone.go)`. Then make sure.\nUse `make test` or `make gone`.\n" +
		"[h](admission.md#gone), [i](#gone), [j](admission.md#code), [k](limiter.go#L1), [l](admission.md#placed).\n" +
		"```sh\nmake demo   # make nothing\nmake -j2 && make lost\ntable[i](gone.go)\n```\n```go\n// make sure\n```\n[g](gone.txt)\n"
	pages := map[string]string{"docs/admission.md": "# Gates\n## The life of a gate\n```sh\n# Code\n```\n<a id=\"placed\"></a>\n", "README.md": "", "docs/limiter.go": ""}
	content := func(file string) (string, bool) {
		text, exists := pages[file]
		return text, exists
	}
	mustFind(t, checkPage("docs/page.md", page, "test: lint ## tests\n\ttrue\ndemo:\n", content),
		"docs/page.md: the link to gone.md leads nowhere",
		"docs/page.md: the link to gone.svg leads nowhere",
		"docs/page.md: the link to admission.md#gone leads nowhere",
		"docs/page.md: the link to #gone leads nowhere",
		"docs/page.md: the link to admission.md#code leads nowhere",
		"docs/page.md: the link to gone.txt leads nowhere",
		"docs/page.md: the Makefile has no target gone",
		"docs/page.md: the Makefile has no target lost",
	)

	got := slices.Sorted(maps.Keys(anchors("# `New`, *its* [parts](a.md#b): 1.5 × A/B_c – done!\n## Same\n### Same\n####No\n#\n")))
	if want := []string{"new-its-parts-15--ab_c--done", "same", "same-1"}; !slices.Equal(got, want) {
		t.Errorf("anchors %q, want %q", got, want)
	}

	mustFind(t, checkText("docs/page.md", strings.ReplaceAll("see /~home/ann/x\n(/~root/x)\n\"/~tmp/x\"\n/~work/x\n"+
		"https://proxy.~golang.org\nhttps://example.com/~home/x ../~work/x ~/~work\n", "~", "")),
		"see /", "(/", `"/`, "knows a machine: /", "knows a machine: https://proxy.")
	mustFind(t, checkText("server.go", strings.ReplaceAll("mux.Handle(\"/~work/{id}\")\nos.Open(\"/~home/ann/x\")\n", "~", "")), "os.Open")

	const tail = "\nfunc f() {}\n"
	for text, fine := range map[string]bool{
		"// Opens.\n\npackage p\n" + tail:                                true,
		"//go:build race\n\n// Opens.\n\npackage p\n" + tail:             true,
		"package p\n\n// Opens.\n\nimport _ \"fmt\"\n" + tail:            true,
		"package p\n\n// Opens.\n\n// f does.\nfunc f() {}\n":            true,
		"// Package p opens.\npackage p\n":                               true,
		"package p\n" + tail:                                             false,
		"//go:build race\n\npackage p\n" + tail:                          false,
		"package p\n\n// f does.\nfunc f() {}\n":                         false,
		"package p\n\nimport _ \"fmt\"\n\n// Too late.\n\nfunc f() {}\n": false,
	} {
		if findings := checkGo("p/p.go", text); fine != (len(findings) == 0) {
			t.Errorf("%q: findings %q", text, findings)
		}
	}

	const test = "// Opens.\n\npackage p\n\nimport (\n\t\"time\"\n%s)\n\nfunc f() {\n\ttime.Sleep(1)%s\n}\n"
	mustFind(t, checkGo("p/p_test.go", fmt.Sprintf(test, "", "")), "p/p_test.go:10:2: time.Sleep in a test")
	mustFind(t, checkGo("p/p.go", fmt.Sprintf(test, "", "")))
	mustFind(t, checkGo("p/p_test.go", fmt.Sprintf(test, "", " // the kernel gives no event for this")))
	mustFind(t, checkGo("p/p_test.go", fmt.Sprintf(test, "\"testing/synctest\"\n", "")))
}
