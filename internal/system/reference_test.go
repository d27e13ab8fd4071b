// SPDX-License-Identifier: Apache-2.0

package system

// Two pages are written from the comments in the code: docs/reference.md has every field of every configuration, with its type,
// default, bounds and effect, and docs/packages.md the comment of every package.

import (
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const referenceHead = `# Every setting

Written by ` + "`make api`" + ` from the comments in the code. [Tuning](guides/tuning.md) says which to change, and when.
`

// TestReference: the page shows each exported field of each Config as its comment describes it. With -update it writes the page.
func TestReference(t *testing.T) {
	page := &strings.Builder{}
	page.WriteString(referenceHead)
	for _, dir := range packagesOf(t) {
		for _, c := range configs(t, dir) {
			fmt.Fprintf(page, "\n## %s.%s\n\n| field | type | default, bounds, effect |\n|---|---|---|\n", path.Base(dir), c.Name)
			described := "" // the field whose comment describes those below it, too
			for _, f := range c.Type.(*ast.StructType).Fields.List {
				described = row(t, page, f, described)
			}
		}
	}
	written(t, "docs/reference.md", page.String())
}

// written compares a page with what it should be. With -update it writes the page.
func written(t *testing.T, page, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(filepath.Join(root(t), filepath.FromSlash(page)), []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if read(t, page) != want {
		t.Errorf("%s is out of date: make api", page)
	}
}

const packagesHead = `# Every package

Written by ` + "`make api`" + ` from the comments in the code: how each package works, what blocks, and which errors it returns.
`

// TestPackages: the page shows the comment of each package, under a heading of its path.
func TestPackages(t *testing.T) {
	page := &strings.Builder{}
	page.WriteString(packagesHead)
	// Links between names of Go become their text.
	reader := &comment.Parser{
		LookupPackage: func(name string) (string, bool) { return name, true }, LookupSym: func(_, _ string) bool { return true },
	}
	printer := &comment.Printer{
		HeadingLevel: 3, HeadingID: func(*comment.Heading) string { return "" }, DocLinkURL: func(*comment.DocLink) string { return "" },
	}
	for _, dir := range packagesOf(t) {
		if text := packageComment(t, dir); text != "" {
			fmt.Fprintf(page, "\n## %s\n\n%s", dir, printer.Markdown(reader.Parse(text)))
		}
	}
	written(t, "docs/packages.md", page.String())
}

// packageComment is the comment of a library's package clause; "": it is a program, or has none.
func packageComment(t *testing.T, dir string) (text string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root(t), filepath.FromSlash(dir), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		if parsed.Name.Name != "main" {
			text += parsed.Doc.Text()
		}
	}
	return text
}

// packagesOf are the directories of the published packages, relative to the root.
func packagesOf(t *testing.T) (dirs []string) {
	t.Helper()
	walk(t, func(file string) {
		dir := path.Dir(file)
		if path.Ext(file) == ".go" && !strings.Contains(dir+"/", "internal/") && !strings.HasPrefix(dir, "examples") &&
			!slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	})
	return dirs
}

// configs are the exported structs of a package that are called Config, or end so.
func configs(t *testing.T, dir string) (found []*ast.TypeSpec) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root(t), filepath.FromSlash(dir), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.TYPE {
				for _, s := range g.Specs {
					s, isType := s.(*ast.TypeSpec)
					if _, isStruct := s.Type.(*ast.StructType); isType && isStruct && s.Name.IsExported() && strings.HasSuffix(s.Name.Name, "Config") {
						found = append(found, s)
					}
				}
			}
		}
	}
	return found
}

// row writes the exported names of one field, and returns the field that describes it: above, or itself.
func row(t *testing.T, page *strings.Builder, f *ast.Field, above string) (described string) {
	t.Helper()
	kind := &strings.Builder{}
	if err := format.Node(kind, token.NewFileSet(), f.Type); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range f.Names {
		if n.IsExported() {
			names = append(names, "`"+n.Name+"`")
		}
	}
	if len(f.Names) == 0 {
		names = []string{"`" + kind.String() + "`"}
	}
	if len(names) == 0 {
		return above
	}
	text := f.Doc.Text()
	if text == "" {
		text = f.Comment.Text()
	}
	switch {
	case text != "":
		described = names[0]
	case above != "":
		described, text = above, "see "+above
	default:
		t.Errorf("%s has no comment", strings.Join(names, ", "))
	}
	plain := string((&comment.Printer{TextWidth: -1}).Text(new(comment.Parser).Parse(text)))
	plain = strings.Join(strings.Fields(plain), " ")
	cell := strings.NewReplacer("|", `\|`, "<", "&lt;", "[", "", "]", "", "\n", " ", "\t", " ")
	fmt.Fprintf(page, "| %s | `%s` | %s |\n", strings.Join(names, ", "), strings.Join(strings.Fields(kind.String()), " "), cell.Replace(plain))
	return described
}
