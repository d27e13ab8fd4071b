package main

// The text form of mutants, and the numbers that docs/ defines.

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A mutant is one change of one file that breaks one invariant.
type mutant struct {
	number string // such as A3
	file   string // relative to the root, with slashes
	what   string // its comment: what is broken
	old    string
	new    string
}

// head begins a mutant: "A3 admission/gate.go".
var head = regexp.MustCompile(`^([ALMCQBDHR][0-9]+) (\S+\.go)$`)

// parse reads mutants. Each is a head and then lines that begin with - (there now) and + (instead); lines that begin
// with # say what is broken and why it matters.
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
			all = append(all, mutant{number: match[1], file: match[2], what: what})
			what = ""
		}
	}
	for _, m := range all {
		if m.old == "" || m.old == m.new {
			return nil, fmt.Errorf("%s: %s %s changes nothing", name, m.number, m.file)
		}
	}
	return all, nil
}

// apply returns the text with the change made. What is there now must be there once: a mutant may not become a change
// of something else when the file moves on.
func (m mutant) apply(text string) (string, error) {
	text = "\n" + text
	at := strings.Index(text, "\n"+m.old)
	if at < 0 {
		return "", fmt.Errorf("the lines to replace are not in it:\n%s", m.text())
	}
	if strings.Contains(text[at+1:], "\n"+m.old) {
		return "", fmt.Errorf("the lines to replace are in it more than once:\n%s", m.text())
	}
	return text[1:at+1] + m.new + text[at+1+len(m.old):], nil
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

// load reads the mutants beside this program.
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

// defined lists the numbers that the pages of dir define.
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

// complete says which numbers have no mutant, and which mutants no number.
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
