package main

// The page that lists, for each number, the mutants that only its own tests catch.

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

const preface = `# What only the tests of a number notice

Each numbered invariant is broken on purpose, in several ways. Below is, for each number, what was broken when no test but those that
carry the number noticed, and which did. A row without one says so: then every break that was tried is noticed by others as well, or none has been tried so far.
Many numbers share a test, because a state machine beside a naive model holds several at once; it counts for each number in its name.
The long tests that ` + "`-short`" + ` leaves out are not among the others that ran.

Made by ` + "`make mutants MUTANTS='-table docs/evidence/mutants.md'`" + `, or with letters or numbers behind it: then the other rows stay as they are.

| number | broken, and noticed by nobody else | noticed by |
|---|---|---|
`

// row describes a mutant; empty if other tests caught it too.
func row(m mutant, v verdict) string {
	if !v.alone() {
		return ""
	}
	return fmt.Sprintf("| %s | %s | %s |", m.number, strings.ReplaceAll(m.what, "|", `\|`), strings.Join(v.tests, ", "))
}

var rowOf = regexp.MustCompile(`(?m)^\| ([ALMCQBDHR][0-9]+) \|.*$`)

// write puts rows into the page, replaces those of the same numbers, and lists the defined numbers without a row.
func write(page string, rows map[string][]string, defined []string) error {
	old, err := os.ReadFile(page)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	all := map[string][]string{}
	for _, match := range rowOf.FindAllStringSubmatch(string(old), -1) {
		all[match[1]] = append(all[match[1]], match[0])
	}
	for number, some := range rows {
		some = slices.DeleteFunc(slices.Clone(some), func(s string) bool { return s == "" })
		if len(some) == 0 {
			some = []string{fmt.Sprintf("| %s | nothing: others notice all that was tried | |", number)}
		}
		all[number] = some
	}
	for _, number := range defined {
		if all[number] == nil {
			all[number] = []string{fmt.Sprintf("| %s | not tried yet | |", number)}
		}
	}
	var b strings.Builder
	b.WriteString(preface)
	for _, number := range slices.SortedFunc(maps.Keys(all), byNumber) {
		b.WriteString(strings.Join(all[number], "\n") + "\n")
	}
	return os.WriteFile(page, []byte(b.String()), 0o644) //nolint:gosec // a page of the documentation
}
