package system

// What each module exports is written down in docs/api, so that a change of it is a visible line in a diff.

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/api instead of comparing with it")

// private are the modules that are nobody's dependency.
var private = []string{"examples", "internal/"}

// exports lists what p exports, one line for each thing that a program can name, in order.
func exports(p *types.Package) []string {
	local := func(q *types.Package) string {
		if q == p {
			return ""
		}
		return q.Name()
	}
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	scope := p.Scope()
	for _, name := range scope.Names() {
		obj := scope.Lookup(name)
		if !obj.Exported() {
			continue
		}
		switch obj := obj.(type) {
		case *types.Const:
			add("const %s %s = %s", name, types.TypeString(obj.Type(), local), obj.Val().ExactString())
		case *types.TypeName:
			exportsOfType(obj, local, add)
		default:
			add("%s", types.ObjectString(obj, local))
		}
	}
	slices.Sort(lines)
	return lines
}

// exportsOfType adds a line for a type and one for each exported field and method of it.
func exportsOfType(obj *types.TypeName, local types.Qualifier, add func(string, ...any)) {
	name := obj.Name()
	named, ok := obj.Type().(*types.Named)
	if obj.IsAlias() || !ok {
		add("%s", types.ObjectString(obj, local)) // an alias: what it stands for is listed where it is declared
		return
	}
	hidden := ""
	switch under := named.Underlying().(type) {
	case *types.Struct:
		for f := range under.Fields() {
			switch {
			case !f.Exported():
				hidden = ", more that is not exported"
			case f.Embedded():
				add("type %s struct, embeds %s", name, types.TypeString(f.Type(), local))
			default:
				add("type %s struct, %s %s", name, f.Name(), types.TypeString(f.Type(), local))
			}
		}
		add("type %s%s struct%s", name, parameters(named, local), hidden)
	case *types.Interface:
		for m := range under.Methods() {
			if !m.Exported() {
				hidden = ", more that is not exported"
				continue
			}
			add("type %s interface, %s%s", name, m.Name(), strings.TrimPrefix(types.TypeString(m.Type(), local), "func"))
		}
		add("type %s%s interface%s", name, parameters(named, local), hidden)
	default:
		add("type %s%s %s", name, parameters(named, local), types.TypeString(under, local))
	}
	for m := range named.Methods() {
		if m.Exported() {
			add("%s", types.ObjectString(m, local))
		}
	}
}

// parameters are the type parameters of a generic type, in brackets.
func parameters(t *types.Named, local types.Qualifier) string {
	var all []string
	for p := range t.TypeParams().TypeParams() {
		all = append(all, p.Obj().Name()+" "+types.TypeString(p.Constraint(), local))
	}
	if len(all) == 0 {
		return ""
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// public lists the modules that others depend on, relative to the root.
func public(t *testing.T) []string {
	t.Helper()
	var dirs []string
	for _, dir := range workModules(t) {
		if !slices.ContainsFunc(private, func(p string) bool { return strings.HasPrefix(dir+"/", strings.TrimSuffix(p, "/")+"/") }) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// snapshot is all that a module exports, package by package.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "# What %s/%s exports. Written by: make api\n", project, dir)
	list := mustGo(t, filepath.Join(root(t), dir), []string{inWorkspace(t)}, "list", "-export", "-deps", "-json=ImportPath,Name,Export,Module", "./...")
	archives, own := map[string]string{}, []string{}
	type listed struct {
		ImportPath, Name, Export string
		Module                   struct{ Path string }
	}
	for _, p := range decode[listed](t, list) {
		archives[p.ImportPath] = p.Export
		if p.Module.Path == project+"/"+dir && p.Name != "main" && !strings.Contains(p.ImportPath+"/", "/internal/") {
			own = append(own, p.ImportPath)
		}
	}
	compiled := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(archives[path]) })
	slices.Sort(own)
	for _, path := range own {
		p, err := compiled.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "\npackage %s\n\n", strings.TrimPrefix(path, project+"/"))
		for _, line := range exports(p) {
			text.WriteString(line + "\n")
		}
	}
	return text.String()
}

// compare reports the lines that only one of two snapshots has, and what is wrong when they differ in nothing else.
func compare(file, recorded, actual string) []string {
	if recorded == actual {
		return nil
	}
	was, is := strings.Split(recorded, "\n"), strings.Split(actual, "\n")
	var findings []string
	for _, line := range was {
		if !slices.Contains(is, line) {
			findings = append(findings, file+": no longer so: "+line)
		}
	}
	for _, line := range is {
		if !slices.Contains(was, line) {
			findings = append(findings, file+": not in it: "+line)
		}
	}
	return append(findings, file+": does not say what the code exports; if that is meant: make api")
}

func TestExportedAPI(t *testing.T) {
	dir := filepath.Join(root(t), "docs", "api")
	wanted := map[string]bool{}
	var findings []string
	for _, m := range public(t) {
		name := strings.ReplaceAll(m, "/", "-") + ".txt"
		wanted[name] = true
		actual := snapshot(t, m)
		if *update {
			write(t, filepath.Join(dir, name), actual)
			continue
		}
		recorded, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		findings = append(findings, compare("docs/api/"+name, string(recorded), actual)...)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !wanted[e.Name()] {
			findings = append(findings, "docs/api/"+e.Name()+": there is no such module")
		}
	}
	if len(wanted) < 4 {
		t.Errorf("only %d modules looked at", len(wanted))
	}
	report(t, findings)
}

func TestExportedAPIFinds(t *testing.T) {
	const source = `package p
import "io"
const A, b uint8 = 1, 2
var V io.Reader
type S struct { F int; io.Writer; g int }
type T[K comparable] struct{}
type I interface { M(x int) error; n() }
type F func(int) string
type Alias = S
type hidden struct{}
func (s *S) Do(n int) error { return nil }
func (s S) do() {}
func (hidden) Out() {}
func G[X any](x X) (X, error) { return x, nil }
`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	checked, err := (&types.Config{Importer: importer.ForCompiler(fset, "source", nil)}).Check("p", fset, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"const A uint8 = 1",
		"func (*S).Do(n int) error",
		"func G[X any](x X) (X, error)",
		"type Alias = S",
		"type F func(int) string",
		"type I interface, M(x int) error",
		"type I interface, more that is not exported",
		"type S struct, F int",
		"type S struct, embeds io.Writer",
		"type S struct, more that is not exported",
		"type T[K comparable] struct",
		"var V io.Reader",
	}
	if got := exports(checked); !slices.Equal(got, want) {
		t.Errorf("exports:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	mustFind(t, compare("a.txt", "type A int\ntype B int\n", "type A int\ntype C int\n"),
		"a.txt: no longer so: type B int", "a.txt: not in it: type C int", "a.txt: does not say what the code exports")
	mustFind(t, compare("a.txt", "b\na\n", "a\nb\n"), "a.txt: does not say what the code exports")
	if f := compare("a.txt", "same", "same"); len(f) != 0 {
		t.Error(f)
	}
}
