// SPDX-License-Identifier: Apache-2.0

// One file with all of its mutants.

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A mutant is one change of one statement or condition.
type mutant struct {
	number int
	at     token.Position
	before string
	after  string
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d: %s -> %s", m.at.Filename, m.at.Line, short(m.before), short(m.after))
}

func short(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 70 {
		text = text[:70] + "…"
	}
	return strconv.Quote(text)
}

// swaps are the operators that take the place of others.
var swaps = map[token.Token]string{
	token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">", token.EQL: "!=", token.NEQ: "==", token.LAND: "||", token.LOR: "&&",
	token.ADD: "-", token.SUB: "+", token.MUL: "+", token.ADD_ASSIGN: "-=", token.SUB_ASSIGN: "+=", token.INC: "--", token.DEC: "++",
}

// caseOf finds the number of a mutant in its code.
var caseOf = regexp.MustCompile(`case (\d+): // mutant`)

// mutator writes the mutants of one file.
type mutator struct {
	text  string
	files *token.FileSet
	first int
	bad   map[int]bool
	found []mutant
	edits []edit
}

// An edit replaces a part of the text.
type edit struct {
	from, to int
	text     string
}

// mutate returns the file with all mutants, numbered from first, but the bad ones.
func mutate(file string, first int, bad map[int]bool) (text []byte, all []mutant, err error) {
	text, err = os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	m := &mutator{text: string(text), files: token.NewFileSet(), first: first, bad: bad}
	parsed, err := parser.ParseFile(m.files, file, text, 0)
	if err != nil {
		return nil, nil, err
	}
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			ast.Inspect(f.Body, m.visit)
		}
	}
	slices.SortFunc(m.edits, func(a, b edit) int { return b.from - a.from })
	out, start := m.text, len(m.text)
	for _, e := range m.edits {
		if e.to <= start { // an edit inside of another one is left out
			out, start = out[:e.from]+e.text+out[e.to:], e.from
		}
	}
	return []byte(out), m.found, nil
}

// visit mutates the statements of a block and the conditions of a statement.
func (m *mutator) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BlockStmt:
		m.statements(n.List)
	case *ast.CaseClause:
		m.statements(n.Body)
	case *ast.CommClause:
		m.statements(n.Body)
	case *ast.IfStmt:
		m.condition(n.Cond)
	case *ast.ForStmt:
		m.condition(n.Cond)
	case *ast.SwitchStmt:
		for _, c := range n.Body.List {
			for _, e := range c.(*ast.CaseClause).List { //nolint:forcetypeassert // there is nothing else in a switch
				if n.Tag == nil {
					m.condition(e)
				}
			}
		}
	}
	return true
}

func (m *mutator) offset(p token.Pos) int   { return m.files.Position(p).Offset }
func (m *mutator) textOf(n ast.Node) string { return m.text[m.offset(n.Pos()):m.offset(n.End())] }
func (m *mutator) replace(n ast.Node, by string) {
	m.edits = append(m.edits, edit{m.offset(n.Pos()), m.offset(n.End()), by})
}

// cases writes the mutants of a node, each by prefix and its text.
func (m *mutator) cases(n ast.Node, prefix string, variants []string) string {
	var out strings.Builder
	for _, v := range variants {
		number := m.first + len(m.found)
		m.found = append(m.found, mutant{number, m.files.Position(n.Pos()), m.textOf(n), v})
		if !m.bad[number] {
			fmt.Fprintf(&out, "case %d: // mutant\n%s%s\n", number, prefix, v)
		}
	}
	return out.String()
}

func (m *mutator) condition(e ast.Expr) {
	if e == nil || hasFunction(e) || strings.Contains(m.textOf(e), "recover(") {
		return
	}
	text := m.textOf(e)
	variants := append([]string{"!(" + text + ")"}, m.variants(e)...)
	m.replace(e, "func() bool {\nswitch activeMutant {\n"+m.cases(e, "return ", variants)+"}\nreturn "+text+"\n}()")
}

func (m *mutator) statements(all []ast.Stmt) {
	for _, st := range all {
		if hasFunction(st) || strings.Contains(m.textOf(st), "ock()") { // locks
			continue
		}
		variants := m.variants(st)
		switch st := st.(type) {
		case *ast.AssignStmt:
			if st.Tok == token.DEFINE {
				continue
			}
			variants = append(variants, "")
		case *ast.ExprStmt:
			if strings.HasPrefix(m.textOf(st), "panic(") {
				continue
			}
			variants = append(variants, "")
		case *ast.IncDecStmt, *ast.ReturnStmt:
		default:
			continue
		}
		if len(variants) > 0 {
			m.replace(st, "switch activeMutant {\n"+m.cases(st, "", variants)+"default:\n"+m.textOf(st)+"\n}")
		}
	}
}

// hasFunction reports whether there is a function in it, whose statements are mutated themselves.
func hasFunction(n ast.Node) (has bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		_, is := n.(*ast.FuncLit)
		has = has || is
		return !has
	})
	return has
}

// variants are texts of the node with one operator, number or truth changed.
func (m *mutator) variants(n ast.Node) (all []string) {
	text, base := m.textOf(n), m.offset(n.Pos())
	change := func(at token.Pos, length int, by string) {
		from := m.offset(at) - base
		all = append(all, text[:from]+by+text[from+length:])
	}
	swap := func(at token.Pos, op token.Token) {
		if by, ok := swaps[op]; ok {
			change(at, len(op.String()), by)
		}
	}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			swap(n.OpPos, n.Op)
		case *ast.AssignStmt:
			swap(n.TokPos, n.Tok)
		case *ast.IncDecStmt:
			swap(n.TokPos, n.Tok)
		case *ast.BasicLit:
			if v, err := strconv.Atoi(n.Value); n.Kind == token.INT && err == nil {
				change(n.Pos(), len(n.Value), strconv.Itoa(v+1))
			}
		case *ast.Ident:
			if by, ok := map[string]string{"true": "false", "false": "true"}[n.Name]; ok {
				change(n.Pos(), len(n.Name), by)
			}
		}
		return true
	})
	return all
}
