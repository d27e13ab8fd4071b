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

func TestSnippets(t *testing.T) {
	pages := map[string]string{}
	var sources []string
	walk(t, root(t), func(file string) {
		switch {
		case file == "README.md", path.Dir(file) == "docs" && path.Ext(file) == ".md":
			pages[file] = read(t, root(t), file)
		case path.Ext(file) == ".go":
			sources = append(sources, flat(read(t, root(t), file)))
		}
	})
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
