// SPDX-License-Identifier: Apache-2.0

// Names lists what the project exports and nobody needs: each name, field and method must be used outside its folder, by another
// package, an example or a page. What only its own package and its own tests use is no API.
//
// A use is an identifier in code (not in tests, but in Example functions, and in tests of another module), or a word of code in a
// page (Markdown but docs/api, docs/evidence, CHANGELOG.md and the packages' own comments): the name, or the text of a constant. Methods that an interface
// asks for are as used as their type.
//
// Usage, at the root: go run ./internal/system/names
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const project = "github.com/stopbank/stopbank/"

// standard are methods that the standard library or a well-known one calls through an interface.
var standard = []string{
	"Error", "Is", "As", "Unwrap", "String", "LogValue", "MarshalText", "UnmarshalText", "MarshalJSON", "AppendBinary",
	"UnmarshalBinary",
	"ServeHTTP", "RoundTrip", "CloseIdleConnections", "Timeout", "Describe", "Collect", "GRPCStatus",
}

// A pkg is a package of the project, as `go list -json` prints it.
type pkg struct {
	ImportPath, Name, Dir, Export, ForTest string
	Module                                 *struct{ Path string }
	GoFiles, TestGoFiles, XTestGoFiles     []string
}

func main() {
	findings, err := check()
	if err != nil {
		fmt.Fprintln(os.Stderr, "names:", err)
		os.Exit(2)
	}
	for _, f := range findings {
		fmt.Println(f)
	}
	if len(findings) > 0 {
		fmt.Printf("%d exported names that nothing outside their folder uses: unexport them, or show them in an example or a page\n",
			len(findings))
		os.Exit(1)
	}
}

// A checker type-checks the project's packages from source, so that uses in tests and examples are seen too.
type checker struct {
	fset    *token.FileSet
	exports map[string]string // import path: file of export data
	used    map[string]bool   // identities that something outside their folder uses
}

func check() ([]string, error) {
	packages, err := list()
	if err != nil {
		return nil, err
	}
	c := &checker{fset: token.NewFileSet(), exports: map[string]string{}, used: map[string]bool{}}
	for _, p := range packages {
		c.exports[p.ImportPath] = p.Export
	}
	words, err := pages()
	if err != nil {
		return nil, err
	}
	declared := map[string]*types.Package{}
	for _, p := range packages {
		if !strings.HasPrefix(p.ImportPath, project) || p.ForTest != "" {
			continue
		}
		own := c.uses(p, p.GoFiles, nil)
		inPackage := c.uses(p, append(slices.Clone(p.GoFiles), p.TestGoFiles...), nil)
		c.uses(p, p.XTestGoFiles, inPackage)
		path := strings.TrimPrefix(p.ImportPath, project)
		if p.Name != "main" && !strings.Contains("/"+path+"/", "/internal/") && !strings.HasPrefix(path, "examples") {
			declared[path] = own
		}
	}
	var all []object
	for path, p := range declared {
		for _, name := range p.Scope().Names() {
			if obj := p.Scope().Lookup(name); obj.Exported() {
				all = append(all, c.objects(path, obj)...)
			}
		}
	}
	mentioned := map[string]bool{} // types in what is used: who uses a constant or a result needs no name of its type
	var open []object
	for _, o := range all {
		if c.used[c.identity(o.Object)] || words[o.Name()] || words[codeOf(o.Object)] {
			for _, name := range typeName.FindAllString(types.TypeString(o.Type(), nil), -1) {
				mentioned[name] = true
			}
		} else {
			open = append(open, o)
		}
	}
	var findings []string
	for _, o := range open {
		if _, ok := o.Object.(*types.TypeName); !ok || !mentioned[o.Pkg().Path()+"."+o.Name()] {
			findings = append(findings, o.what)
		}
	}
	slices.Sort(findings)
	return findings, nil
}

// codeOf is the text of a constant, by which pages name it: "queue_overflow"; "" for anything else.
func codeOf(obj types.Object) string {
	if c, ok := obj.(*types.Const); ok && c.Val().Kind() == constant.String {
		return constant.StringVal(c.Val())
	}
	return ""
}

// typeName is the name of a type of the project in a type.
var typeName = regexp.MustCompile(regexp.QuoteMeta(project) + `[\w/]+\.\w+`)

// list returns the packages of the workspace and all that they import, with their export data.
func list() (all []pkg, err error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-test",
		"-json=ImportPath,Name,Dir,Export,ForTest,Module,GoFiles,TestGoFiles,XTestGoFiles", "work")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for dec := json.NewDecoder(out); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, cmd.Wait()
		} else if err != nil {
			return nil, err
		}
		if !strings.HasSuffix(p.ImportPath, ".test") && !strings.HasSuffix(p.ImportPath, "]") {
			all = append(all, p)
		}
	}
}

// uses type-checks files of p and notes what they use of other folders. under is p itself for its external tests.
func (c *checker) uses(p pkg, files []string, under *types.Package) *types.Package {
	var parsed []*ast.File
	for _, name := range files {
		f, err := parser.ParseFile(c.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err == nil {
			parsed = append(parsed, f)
		}
	}
	data := importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(c.exports[path]) })
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{
		Importer: importing(func(path string) (*types.Package, error) {
			if path == "unsafe" {
				return types.Unsafe, nil
			}
			if under != nil && path == p.ImportPath {
				return under, nil
			}
			return data.Import(path)
		}),
		Error: func(error) {}, // a test may mix p and the export data of p: what it uses is known all the same
	}
	checked, _ := conf.Check(p.ImportPath, c.fset, parsed, info)
	for _, f := range parsed {
		test := strings.HasSuffix(c.fset.Position(f.Pos()).Filename, "_test.go")
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			example := ok && strings.HasPrefix(fn.Name.Name, "Example") ||
				strings.HasPrefix(filepath.Base(c.fset.Position(f.Pos()).Filename), "example")
			ast.Inspect(d, func(n ast.Node) bool {
				id, ok := n.(*ast.Ident)
				if !ok {
					return true
				}
				obj := info.Uses[id]
				if obj == nil || obj.Pkg() == nil || !strings.HasPrefix(obj.Pkg().Path(), project) {
					return true
				}
				elsewhere := strings.TrimSuffix(obj.Pkg().Path(), "_test") != p.ImportPath
				if test && example || !test && elsewhere || test && elsewhere && !sameModule(p, obj.Pkg().Path()) {
					c.used[c.identity(obj)] = true
				}
				return true
			})
		}
	}
	return checked
}

type importing func(path string) (*types.Package, error)

func (i importing) Import(path string) (*types.Package, error) { return i(path) }

// sameModule is true for the tests that a module has of itself.
func sameModule(p pkg, path string) bool {
	return p.Module != nil && strings.HasPrefix(path+"/", p.Module.Path+"/")
}

// identity is where an object is declared: the same whether it was read from source or from export data.
func (c *checker) identity(obj types.Object) string {
	switch o := obj.(type) {
	case *types.Var:
		obj = o.Origin()
	case *types.Func:
		obj = o.Origin()
	}
	at := c.fset.Position(obj.Pos())
	return fmt.Sprintf("%s %s:%d %s", obj.Pkg().Path(), filepath.Base(at.Filename), at.Line, obj.Name())
}

// An object is something exported, and how a reader finds it: "warden/limiter Config.MaxQueue".
type object struct {
	types.Object
	what string
}

// objects are obj, its fields, and its methods but those that an interface asks for.
func (c *checker) objects(path string, obj types.Object) []object {
	all := []object{{obj, path + " " + obj.Name()}}
	name, ok := obj.(*types.TypeName)
	if !ok || name.IsAlias() {
		return all
	}
	named, ok := name.Type().(*types.Named)
	if !ok {
		return all
	}
	if s, ok := named.Underlying().(*types.Struct); ok {
		for f := range s.Fields() {
			if f.Exported() && !f.Embedded() {
				all = append(all, object{f, path + " " + obj.Name() + "." + f.Name()})
			}
		}
	}
	for m := range named.Methods() {
		if m.Exported() && !slices.Contains(standard, m.Name()) && !c.asked(named, m) {
			all = append(all, object{m, path + " " + obj.Name() + "." + m.Name()})
		}
	}
	return all
}

// asked is true for a method that an interface of the project, or one that its package imports, asks of the type.
func (c *checker) asked(t *types.Named, m *types.Func) bool {
	for _, p := range append(t.Obj().Pkg().Imports(), t.Obj().Pkg()) {
		for _, name := range p.Scope().Names() {
			i, ok := p.Scope().Lookup(name).Type().Underlying().(*types.Interface)
			if !ok || !strings.HasPrefix(p.Path(), project) {
				continue
			}
			for im := range i.Methods() {
				if im.Name() == m.Name() && (types.Implements(t, i) || types.Implements(types.NewPointer(t), i)) {
					return true
				}
			}
		}
	}
	return false
}

var (
	code = regexp.MustCompile("(?s)```.*?```|`[^`\n]+`")
	word = regexp.MustCompile(`\b[A-Z]\w*|\b[a-z]+(?:_[a-z]+)*\b`)
)

// pages returns the words in the code of all pages that may be names or codes.
func pages() (map[string]bool, error) {
	words := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "bin", "docs/api", "docs/evidence"}, filepath.ToSlash(path)):
			return fs.SkipDir
		case filepath.Ext(path) != ".md" || d.Name() == "CHANGELOG.md" || d.Name() == "packages.md":
			return nil
		}
		text, err := os.ReadFile(path)
		for _, span := range code.FindAllString(string(text), -1) {
			for _, w := range word.FindAllString(span, -1) {
				words[w] = true
			}
		}
		return err
	})
	return words, err
}
