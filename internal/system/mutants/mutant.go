package main

// The text form of mutants, their application, and the numbers that docs/ defines.
//
// A mutant quotes the few tokens that it replaces, and names their declaration. Changes of layout, comments, file, and of the rest
// of the declaration do not affect it.

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A mutant is one change of one declaration that breaks one invariant.
type mutant struct {
	number string // such as A3
	dir    string // of the package, relative to the root, with slashes
	decl   string // such as New, Gate.Drain, or a type's, variable's or constant's name
	what   string // its comment: the broken behaviour
	old    string // tokens
	new    string
}

// head is the first line of a mutant: "A3 admission Gate.leave".
var head = regexp.MustCompile(`^([ALMCQBDHR][0-9]+) ([a-z0-9/]+) (\w+(?:\.\w+)?)$`)

// parse reads mutants. Each is a head followed by lines that begin with - (present tokens) and + (their replacement); lines that
// begin with # describe the broken behaviour.
func parse(name, text string) ([]mutant, error) {
	var all []mutant
	var what string
	for i, line := range strings.Split(text, "\n") {
		wrong := func(what string) error { return fmt.Errorf("%s:%d: %s: %q", name, i+1, what, line) }
		switch {
		case line == "":
			what = ""
		case line[0] == '#':
			what = strings.TrimSpace(what + line[1:])
		case line[0] == '-' || line[0] == '+':
			if len(all) == 0 {
				return nil, wrong("a line of no mutant")
			}
			m := &all[len(all)-1]
			if line[0] == '-' {
				m.old += line[1:] + "\n"
			} else {
				m.new += line[1:] + "\n"
			}
		default:
			match := head.FindStringSubmatch(line)
			if match == nil {
				return nil, wrong("neither a mutant's head nor a line of it")
			}
			all = append(all, mutant{number: match[1], dir: match[2], decl: match[3], what: what})
			what = ""
		}
	}
	for _, m := range all {
		if m.old == "" || slices.EqualFunc(tokens(m.old), tokens(m.new), same) {
			return nil, fmt.Errorf("%s: %s %s changes nothing", name, m.number, m.place())
		}
	}
	return all, nil
}

func (m mutant) place() string { return m.dir + " " + m.decl }

// A lexeme is a token with its position in bytes.
type lexeme struct {
	text       string
	begin, end int
}

func same(a, b lexeme) bool { return a.text == b.text }

// tokens splits Go source, or a part of it, into tokens, without comments and automatic semicolons. The text of raw strings is split
// as well.
func tokens(text string) []lexeme {
	var all []lexeme
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(text))
	s.Init(file, []byte(text), nil, 0)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return all
		}
		if lit == "" {
			lit = tok.String()
		}
		switch begin := file.Offset(pos); {
		case tok == token.SEMICOLON && lit != ";":
		case tok == token.STRING && lit[0] == '`': // SQL: words are tokens
			end := begin + len(lit)
			all = append(all, lexeme{"`", begin, begin + 1})
			for _, t := range tokens(text[begin+1 : end-1]) {
				all = append(all, lexeme{t.text, begin + 1 + t.begin, begin + 1 + t.end})
			}
			all = append(all, lexeme{"`", end - 1, end})
		default:
			all = append(all, lexeme{lit, begin, begin + len(lit)})
		}
	}
}

// apply finds the declaration below root, and returns its file's path with the old and the changed text. The tokens to replace must
// occur exactly once: a mutant must not silently change meaning when the code changes.
func (m mutant) apply(root string) (path, before, after string, err error) {
	paths, err := filepath.Glob(filepath.Join(root, m.dir, "*.go"))
	if err != nil {
		return "", "", "", err
	}
	found, times := false, 0
	for _, file := range paths {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return "", "", "", err
		}
		for _, d := range declared(string(text), m.decl) {
			found = true
			if changed, n := m.change(string(text), d); n > 0 {
				path, before, after, times = file, string(text), changed, times+n
			}
		}
	}
	switch {
	case !found:
		return "", "", "", fmt.Errorf("%s declares no %s", m.dir, m.decl)
	case times == 0:
		return "", "", "", fmt.Errorf("the tokens to replace are not in it:\n%s", m.text())
	case times > 1:
		return "", "", "", fmt.Errorf("the tokens to replace are in it %d times:\n%s", times, m.text())
	}
	return path, before, after, nil
}

// A span is the bytes from begin to end.
type span struct{ begin, end int }

// declared returns the declarations of a name in a file: a function, a method as Type.Name, a type, a variable, a constant.
func declared(text, name string) (spans []span) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", text, parser.SkipObjectResolution)
	if err != nil {
		return nil
	}
	take := func(n ast.Node, names ...string) {
		if slices.Contains(names, name) {
			spans = append(spans, span{fset.Position(n.Pos()).Offset, fset.Position(n.End()).Offset})
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			take(d, receiver(d)+d.Name.Name)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					take(s, s.Name.Name)
				case *ast.ValueSpec:
					for _, n := range s.Names {
						take(s, n.Name)
					}
				}
			}
		}
	}
	return spans
}

// receiver is the type of a method's receiver with a dot, or empty.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	of := d.Recv.List[0].Type
	for {
		switch t := of.(type) {
		case *ast.StarExpr:
			of = t.X
		case *ast.IndexExpr:
			of = t.X
		case *ast.IndexListExpr:
			of = t.X
		case *ast.Ident:
			return t.Name + "."
		default:
			return ""
		}
	}
}

// change replaces the tokens in a part of a text, and returns the number of their occurrences.
func (m mutant) change(text string, part span) (changed string, times int) {
	old, all := tokens(m.old), tokens(text[part.begin:part.end])
	for i := range max(0, len(all)-len(old)+1) {
		if slices.EqualFunc(all[i:i+len(old)], old, same) {
			times++
			changed = text[:part.begin+all[i].begin] + strings.TrimSpace(m.new) + text[part.begin+all[i+len(old)-1].end:]
		}
	}
	return changed, times
}

func (m mutant) text() string {
	var b strings.Builder
	for line := range strings.Lines(m.old) {
		b.WriteString("-" + line)
	}
	for line := range strings.Lines(m.new) {
		b.WriteString("+" + line)
	}
	return b.String()
}

// load reads the mutants next to this program.
func load() ([]mutant, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, e := range entries {
		text, err := files.ReadFile(e.Name())
		if err != nil {
			return nil, err
		}
		some, err := parse(e.Name(), string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	slices.SortStableFunc(all, func(a, b mutant) int { return byNumber(a.number, b.number) })
	return all, nil
}

var bullet = regexp.MustCompile(`(?m)^- \*\*([ALMCQBDHR][0-9]+)\*\*`)

// defined returns the numbers that the pages of dir define.
func defined(dir string) ([]string, error) {
	pages, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		return nil, err
	}
	var numbers []string
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		for _, match := range bullet.FindAllStringSubmatch(string(text), -1) {
			numbers = append(numbers, match[1])
		}
	}
	if len(numbers) == 0 {
		return nil, fmt.Errorf("%s defines no invariants: run it from the repository's root", dir)
	}
	slices.SortFunc(numbers, byNumber)
	return numbers, nil
}

// complete reports the numbers without a mutant and the mutants without a number.
func complete(all []mutant, defined []string) error {
	var missing []string
	for _, n := range defined {
		if !slices.ContainsFunc(all, func(m mutant) bool { return m.number == n }) {
			missing = append(missing, n)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("no mutant breaks %s", strings.Join(missing, ", "))
	}
	for _, m := range all {
		if !slices.Contains(defined, m.number) {
			return fmt.Errorf("no page defines %s", m.number)
		}
	}
	return nil
}
