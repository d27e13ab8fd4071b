package system

// The Go code in the pages is code that runs: every snippet stands in a file that the tests compile.

import (
	"fmt"
	"path"
	"strings"
	"testing"
)

// snippets are the pieces of Go in a page: what lies between fences, cut at empty lines and at lines that hold only "…".
func snippets(text string) []string {
	var pieces []string
	var piece []string
	end := func() {
		if len(piece) > 0 {
			pieces = append(pieces, strings.Join(piece, "\n"))
		}
		piece = nil
	}
	inGo, fenced := false, false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			end()
			fenced = !fenced
			inGo = fenced && line == "```go"
		case inGo && (line == "" || line == "…"):
			end()
		case inGo:
			piece = append(piece, line)
		}
	}
	end()
	return pieces
}

// checkSnippets reports the snippets of a page that no Go file has, line for line, whatever the indentation.
func checkSnippets(page, text string, sources []string) []string {
	var findings []string
	for _, s := range snippets(text) {
		found := false
		for _, source := range sources {
			found = found || strings.Contains(source, "\n"+s+"\n")
		}
		if !found {
			findings = append(findings, fmt.Sprintf("%s: no file of Go has this snippet:\n%s", page, s))
		}
	}
	return findings
}

// flat is a file with the indentation of its lines taken away.
func flat(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return "\n" + strings.Join(lines, "\n") + "\n"
}

// blocks are the fenced pieces of Go in a page, each whole.
func blocks(text string) []string {
	var all []string
	for {
		_, rest, found := strings.Cut(text, "\n```go\n")
		if !found {
			return all
		}
		block, rest, _ := strings.Cut(rest, "\n```")
		all = append(all, block+"\n")
		text = rest
	}
}

// checkQuickstart reports the pages among those given that show no program whole, and the programs that no page shows. A program is shown
// whole where one fenced block is its file, byte for byte: a reader copies it and runs it.
func checkQuickstart(pages, programs map[string]string) []string {
	var findings []string
	shown := map[string]bool{}
	for page, text := range pages {
		whole := 0
		for _, block := range blocks(text) {
			for file, program := range programs {
				if block == program {
					whole++
					shown[file] = true
				}
			}
		}
		if whole == 0 {
			findings = append(findings, page+": shows no program of examples/quickstart whole")
		}
	}
	for file := range programs {
		if !shown[file] {
			findings = append(findings, file+": no page of docs/quickstart shows it whole")
		}
	}
	return findings
}

func TestSnippets(t *testing.T) {
	pages, quick, programs := map[string]string{}, map[string]string{}, map[string]string{}
	var sources []string
	walk(t, root(t), func(file string) {
		switch {
		case file == "README.md", strings.HasPrefix(file, "docs/") && path.Ext(file) == ".md":
			pages[file] = read(t, root(t), file)
			if path.Dir(file) == "docs/quickstart" {
				quick[file] = pages[file]
			}
		case path.Ext(file) == ".go":
			text := read(t, root(t), file)
			sources = append(sources, flat(text))
			if strings.HasPrefix(file, "examples/quickstart/") && path.Base(file) == "main.go" {
				programs[file] = text
			}
		}
	})
	report(t, checkQuickstart(quick, programs))
	if len(quick) == 0 || len(programs) == 0 {
		t.Errorf("%d quick starts, %d programs", len(quick), len(programs))
	}
	if len(snippets(pages["README.md"])) == 0 {
		t.Error("the README shows no Go")
	}
	for page, text := range pages {
		for _, finding := range checkSnippets(page, text, sources) {
			t.Error(finding)
		}
	}
}

func TestSnippetsCheckFindsMistakes(t *testing.T) {
	source := []string{flat("package p\n\nfunc f() {\n\ta()\n\tb()\n}\n")}
	for page, want := range map[string]int{
		"```go\na()\nb()\n```":               0,
		"```go\n\ta()\n…\nb()\n```\n":        0,
		"```sh\nc()\n```\n":                  0,
		"```\nc()\n```\n":                    0,
		"```go\nc()\n```\n":                  1,
		"```go\na()\nb()\nc()\n```\n":        1,
		"```go\nb()\na()\n```\n":             1,
		"```go\na()\n\nc()\n\nd()\n```\n":    2,
		"```sh\na()\n```\n\n```go\nc()\n```": 1,
	} {
		if got := checkSnippets("page", page, source); len(got) != want {
			t.Errorf("%q: %d findings, want %d: %v", page, len(got), want, got)
		}
	}
}

func TestQuickstartCheckFindsMistakes(t *testing.T) {
	programs := map[string]string{"a/main.go": "package main\n\nfunc main() {\n\tf()\n}\n", "b/main.go": "package main\n"}
	mustFind(t, checkQuickstart(map[string]string{
		"whole.md": "Text.\n\n```go\npackage main\n\nfunc main() {\n\tf()\n}\n```\n",
		"cut.md":   "Text.\n\n```go\nfunc main() {\n\tf()\n}\n```\n",
		"none.md":  "Text.\n",
	}, programs),
		"cut.md: shows no program", "none.md: shows no program", "b/main.go: no page")
	mustFind(t, checkQuickstart(map[string]string{"both.md": "\n```go\n" + programs["a/main.go"] + "```\n\n```go\n" + programs["b/main.go"] + "```\n"}, programs))
}
