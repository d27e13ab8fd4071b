package system

// docs/README.md is the index of the documentation: it links every page in docs.

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// index is the page that every reader begins with.
const index = "docs/README.md"

// linked are the pages that a page leads to, by their paths from the root. A link to a folder leads to its README.
func linked(file, text string) []string {
	var to []string
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		target, _, _ := strings.Cut(m[1], "#")
		if target == "" || strings.Contains(target, ":") {
			continue
		}
		target = path.Join(path.Dir(file), target)
		if path.Ext(target) == "" {
			target = path.Join(target, "README.md")
		}
		if path.Ext(target) == ".md" {
			to = append(to, target)
		}
	}
	return to
}

// checkIndex reports the pages that the index does not link itself.
func checkIndex(pages map[string]string) []string {
	direct := linked(index, pages[index])
	var findings []string
	for page := range pages {
		if page != index && !slices.Contains(direct, page) {
			findings = append(findings, index+": does not link "+page)
		}
	}
	return findings
}

func TestIndex(t *testing.T) {
	pages := map[string]string{}
	walk(t, root(t), func(file string) {
		if strings.HasPrefix(file, "docs/") && path.Ext(file) == ".md" {
			pages[file] = read(t, root(t), file)
		}
	})
	if len(pages) < 20 {
		t.Errorf("%d pages: they are not found any more", len(pages))
	}
	report(t, checkIndex(pages))
}

func TestIndexCheckFindsMistakes(t *testing.T) {
	mustFind(t, checkIndex(map[string]string{
		index:              "[a](a.md), [b](guides/b.md#part), [c](https://example.com/c.md), [d](d), [e](#e) and [f](../README.md)",
		"docs/a.md":        "[lost](lost.md)",
		"docs/guides/b.md": "",
		"docs/c.md":        "",
		"docs/d/README.md": "",
		"docs/lost.md":     "",
	}), "does not link docs/c.md", "does not link docs/lost.md")
}
