// SPDX-License-Identifier: Apache-2.0

package system

// What each module exports is written down in docs/api, so that a change of it is a visible line in a diff.

import (
	"errors"
	"flag"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	list := mustGo(t, filepath.Join(root(t), dir), []string{inWorkspace(t)}, "list", "-export", "-deps",
		"-json=ImportPath,Name,Export,Module", "./...")
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
	compiled := importer.ForCompiler(token.NewFileSet(), "gc",
		func(path string) (io.ReadCloser, error) { return os.Open(archives[path]) })
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

func TestExportedAPI(t *testing.T) {
	dir := filepath.Join(root(t), "docs", "api")
	wanted := map[string]bool{}
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
		if diff := cmp.Diff(strings.Split(string(recorded), "\n"), strings.Split(actual, "\n")); diff != "" {
			t.Errorf("docs/api/%s does not say what the code exports; if that is meant: make api (-page +code)\n%s", name, diff)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !wanted[e.Name()] {
			t.Errorf("docs/api/%s: there is no such module", e.Name())
		}
	}
}
