package main

// The mutants' file form, and that every mutant still fits the code: a file that moved on must not lose its mutants.

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
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
		text, err := os.ReadFile(filepath.Join(root, m.file))
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := m.apply(string(text)); err != nil {
			t.Errorf("%s %s: %v", m.number, m.file, err)
		}
	}
}

func TestParse(t *testing.T) {
	all, err := parse("x.txt", "# Why.\nA3 a/b.go\n-\tif x {\n+\tif !x {\n+\t\ty()\n\nQ10 c.go\n-gone\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []mutant{
		{number: "A3", file: "a/b.go", what: "Why.", old: "\tif x {\n", new: "\tif !x {\n\t\ty()\n"},
		{number: "Q10", file: "c.go", old: "gone\n"},
	}
	if !slices.Equal(all, want) {
		t.Errorf("parsed %+v, want %+v", all, want)
	}
	for text, wrong := range map[string]string{
		"-x\n":                "line of no mutant",
		"A3 a.go\n":           "changes nothing",
		"A3 a.go\n-x\n+x\n":   "changes nothing",
		"A3 a.txt\n-x\n+y\n":  "neither",
		"Z3 a.go\n-x\n+y\n":   "neither",
		"A3 a.go\n x\n-x\n+y": "neither",
	} {
		if _, err := parse("x.txt", text); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("parse(%q) = %v, want an error with %q", text, err, wrong)
		}
	}
}

func TestApply(t *testing.T) {
	m := mutant{number: "A1", file: "a.go", old: "\tb\n\tc\n", new: "\td\n"}
	if got, err := m.apply("a\n\tb\n\tc\ne\n"); err != nil || got != "a\n\td\ne\n" {
		t.Errorf("applied: %q, %v", got, err)
	}
	for _, text := range []string{"a\n\tb\ne\n", "\tb\n\tc\n\tb\n\tc\n", "x\tb\n\tc\n"} {
		if got, err := m.apply(text); err == nil {
			t.Errorf("applied to %q: %q", text, got)
		}
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
