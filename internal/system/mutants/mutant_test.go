package main

// The mutants' file form, and that every mutant still fits the code: a declaration that moved on must not lose its mutants, and what
// comes out is Go.

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEveryNumberHasAMutantThatStillFits(t *testing.T) {
	all, err := load()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join("..", "..", "..")
	numbers, err := defined(filepath.Join(root, "docs"))
	if err != nil {
		t.Fatal(err)
	}
	if err := complete(all, numbers); err != nil {
		t.Error(err)
	}
	for _, m := range all {
		path, _, after, err := m.apply(root)
		if err != nil {
			t.Errorf("%s %s: %v", m.number, m.place(), err)
		} else if _, err := parser.ParseFile(token.NewFileSet(), path, after, parser.SkipObjectResolution); err != nil {
			t.Errorf("%s %s: %v", m.number, m.place(), err)
		}
	}
}

// A row of the page describes a mutant that exists.
func TestPageListsMutants(t *testing.T) {
	all, err := load()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "evidence", "mutants.md"))
	if err != nil {
		t.Fatal(err)
	}
	listed := 0
	for _, cells := range regexp.MustCompile(`(?m)^\| ([A-Z]\d+) \| (.+) \| .+ \|$`).FindAllStringSubmatch(string(page), -1) {
		listed++
		what := strings.ReplaceAll(cells[2], `\|`, "|")
		if !slices.ContainsFunc(all, func(m mutant) bool { return m.number == cells[1] && m.what == what }) {
			t.Errorf("%s: no mutant is described by %q", cells[1], what)
		}
	}
	if listed == 0 {
		t.Error("the page lists no mutant")
	}
}

func TestParse(t *testing.T) {
	all, err := parse("x.txt", "# Why.\nA3 a/b T.f\n-if x {\n+if !x {\n+\ty()\n\nQ10 c g\n-gone\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []mutant{
		{number: "A3", dir: "a/b", decl: "T.f", what: "Why.", old: "if x {\n", new: "if !x {\n\ty()\n"},
		{number: "Q10", dir: "c", decl: "g", old: "gone\n"},
	}
	if diff := cmp.Diff(want, all, cmp.AllowUnexported(mutant{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for text, wrong := range map[string]string{
		"-x\n":                      "line of no mutant",
		"A3 a f\n":                  "changes nothing",
		"A3 a f\n-x\n+x\n":          "changes nothing",
		"A3 a f\n-x y\n+x // y\n+y": "changes nothing",
		"A3 a.go\n-x\n+y\n":         "neither",
		"Z3 a f\n-x\n+y\n":          "neither",
		"A3 a f\n x\n-x\n+y":        "neither",
	} {
		if _, err := parse("x.txt", text); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("parse(%q) = %v, want an error with %q", text, err, wrong)
		}
	}
}

// TestApply: layout, comments, the file and what stands around the declaration say nothing; the declaration and the tokens do.
func TestApply(t *testing.T) {
	m := mutant{number: "A1", dir: "a", decl: "T.f", old: "if x.y() {\n", new: "if false {\n"}
	const elsewhere = "package a\n\nfunc f() {\n\tif x.y() {\n\t}\n}\n\nfunc (U) f() { if x.y() {} }\n"
	apply := func(text string) (string, error) {
		root := t.TempDir()
		if err := os.Mkdir(filepath.Join(root, "a"), 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"a.go": elsewhere, "b.go": text, "b_test.go": text} {
			if err := os.WriteFile(filepath.Join(root, "a", name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, _, after, err := m.apply(root)
		return after, err
	}
	for text, want := range map[string]string{
		"package a\n\nfunc (T) f() {\n\tif x.y() {\n\t}\n}\n":                                "package a\n\nfunc (T) f() {\n\tif false {\n\t}\n}\n",
		"package a\n\nfunc (t *T[V]) f() {\n\tg(); if x. // why\n\t\ty( ) { // so\n\t}\n}\n": "package a\n\nfunc (t *T[V]) f() {\n\tg(); if false { // so\n\t}\n}\n",
	} {
		if got, err := apply(text); err != nil || got != want {
			t.Errorf("applied to %q: %q, %v", text, got, err)
		}
	}
	for text, wrong := range map[string]string{
		"package a\n\nfunc (T) g() { if x.y() {} }\n":              "declares no T.f",
		"package a\n\nfunc (T) f() { if x.z() {} }\n":              "are not in it",
		"package a\n\nfunc (T) f() { if x.y() {}; if x.y() {} }\n": "2 times",
	} {
		if got, err := apply(text); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("applied to %q: %q, %v; want an error with %q", text, got, err, wrong)
		}
	}

	// The words between backquotes are tokens as well.
	m = mutant{number: "A1", dir: "a", decl: "q", old: "a < b\n", new: "a <= b\n"}
	if got, err := apply("package a\n\nconst q = `SELECT x\n\tWHERE a\n\t< b`\n"); err != nil || got != "package a\n\nconst q = `SELECT x\n\tWHERE a <= b`\n" {
		t.Errorf("applied to SQL: %q, %v", got, err)
	}
}

func TestPatternChoosesByNumber(t *testing.T) {
	re := regexp.MustCompile(pattern("A1"))
	for _, name := range []string{"TestA1_Limit", "TestPropertyA1A2_Machine", "TestRaceA3_A1", "FuzzA1", "TestA1A10_X", "TestRaceA1"} {
		if !re.MatchString(name) {
			t.Errorf("%s is left out", name)
		}
	}
	for _, name := range []string{"TestA10_Limit", "TestA3_LikeA1", "TestA11A12", "TestAll", "ExampleA1"} {
		if re.MatchString(name) {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestFailedNamesWhatFailed(t *testing.T) {
	out := "--- FAIL: TestA1_X (0.00s)\n    x_test.go:3: wrong\n--- FAIL: TestA1_Y (0.1s)\nFAIL\n"
	if got := failed(out); !slices.Equal(got, []string{"TestA1_X", "TestA1_Y"}) {
		t.Errorf("failed = %q", got)
	}
	if got := failed("panic: oops\n\ngoroutine 7 [running]:\nx/y_test.TestA1_Z.func1()\n\t/x/y_test.go:3\n"); !slices.Equal(got, []string{"TestA1_Z"}) {
		t.Errorf("failed = %q", got)
	}
	if got := failed("panic: test timed out after 1m40s\nFAIL\n"); len(got) != 1 {
		t.Errorf("failed = %q", got)
	}
	if got := failed("fatal error: all goroutines are asleep - deadlock!\nFAIL\tx\n"); len(got) != 1 {
		t.Errorf("failed = %q", got)
	}
	if got := failed("ok  \tx\t0.1s\n"); got != nil {
		t.Errorf("failed = %q", got)
	}
}
