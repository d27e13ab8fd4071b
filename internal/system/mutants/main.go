// SPDX-License-Identifier: Apache-2.0

// Mutants breaks each numbered invariant on purpose, once, and shows which tests notice.
//
// A mutant in mutants.txt quotes a few words of one declaration and what to put in their place. The go command builds the tests
// with the changed file laid over the real one, which stays as it is. A failure of the mutant's own test begins with the number,
// as in "Q17: …"; other tests that fail are named too. The run fails if a mutant does not fit or compile, or if no failure says
// its number, and before that if a number of docs/guarantees has no mutant or the tests fail with nothing broken.
//
// Usage, at the root: go run ./internal/system/mutants [-v] [-table PAGE | -only NUMBER or LETTER...]
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

//go:embed mutants.txt
var table string

// A mutant is one change of one declaration that breaks one invariant.
type mutant struct {
	number, what string   // such as A3, and its comment: the broken behaviour
	dir, decl    string   // the package, relative to the root, and a function, Type.Method, type, variable or constant of it
	tests        []string // the packages whose tests run: that one, unless the mutant names others, and flags such as -run=X
	old, new     string
}

var head = regexp.MustCompile(`^([A-Z]\d+) ([a-z0-9/]+) (\w+(?:\.\w+)?)((?: \S+)*)$`)

// parse reads mutants. Each has lines that begin with # (what is broken), a head, and lines that begin with - and + (words of the
// declaration, and their replacement).
func parse(text string) ([]mutant, error) {
	var all []mutant
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		var m mutant
		for line := range strings.Lines(block + "\n") {
			switch match := head.FindStringSubmatch(strings.TrimSpace(line)); {
			case line[0] == '#':
				m.what = strings.TrimSpace(m.what + strings.TrimRight(line[1:], "\n"))
			case line[0] == '-':
				m.old += line[1:]
			case line[0] == '+':
				m.new += line[1:]
			case match == nil || m.number != "":
				return nil, fmt.Errorf("not a line of a mutant: %s", line)
			default:
				m.number, m.dir, m.decl, m.tests = match[1], match[2], match[3], strings.Fields(match[4])
			}
		}
		if m.number == "" || m.what == "" || strings.TrimSpace(m.old) == "" || m.old == m.new {
			return nil, fmt.Errorf("not a whole mutant: %s", block)
		}
		if len(m.tests) == 0 {
			m.tests = []string{m.dir}
		}
		all = append(all, m)
	}
	return all, nil
}

// complete reports the numbers of docs/guarantees without a mutant, and the mutants without a number.
func complete(all []mutant) error {
	pages, err := filepath.Glob("docs/guarantees/*.md")
	if err != nil || len(pages) == 0 {
		return fmt.Errorf("no docs/guarantees/*.md: run it at the root: %w", err)
	}
	left := map[string]int{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		for _, match := range regexp.MustCompile(`(?m)^- \*\*([A-Z]\d+)\*\*`).FindAllStringSubmatch(string(text), -1) {
			left[match[1]]++
		}
	}
	var wrong []error
	for _, m := range all {
		left[m.number]--
	}
	for number, n := range left {
		if n != 0 {
			wrong = append(wrong, fmt.Errorf("%s: %d mutants too few for the pages, want one for each number", number, n))
		}
	}
	return errors.Join(wrong...)
}

var (
	edge = regexp.MustCompile(`^\w|\w$`)
	// What a declaration's text ends at: the end of its line, or the bracket that closes what the line opens.
	whole = regexp.MustCompile(`(?m)\A(?:.*[^{(\n]$|(?s:.*?)^[})])`) //nolint:gocritic // the ^ is the end of a declaration
)

// apply returns the file that has the declaration, and its text with the mutant in it. The words must occur in the declaration
// exactly once, however they are laid out and commented: a mutant must not change its meaning in silence when the code changes.
func (m mutant) apply() (path, text string, err error) {
	receiver, name, method := strings.Cut(m.decl, ".")
	begin := regexp.MustCompile(`(?m)^(?:func |type |var |const |\t)` + m.decl + `\b`)
	if method {
		begin = regexp.MustCompile(`(?m)^func \((?:\w+ )?\*?` + receiver + `(?:\[.*?\])?\) ` + name + `\b`)
	}
	var words []string
	for word := range strings.FieldsSeq(m.old) {
		words = append(words, regexp.QuoteMeta(word))
	}
	old := strings.Join(words, `(?:\s|//.*\n)+`)
	for _, at := range edge.FindAllStringIndex(strings.TrimSpace(m.old), -1) {
		if at[0] == 0 {
			old = `\b` + old
		} else {
			old += `\b`
		}
	}
	files, err := filepath.Glob(filepath.Join(m.dir, "*.go"))
	if err != nil {
		return "", "", err
	}
	times := 0
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil || strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, at := range begin.FindAllIndex(content, -1) {
			for _, found := range regexp.MustCompile(old).FindAllIndex(whole.Find(content[at[0]:]), -1) {
				times++
				path, text = file, string(content[:at[0]+found[0]])+strings.TrimSpace(m.new)+string(content[at[0]+found[1]:])
			}
		}
	}
	if times != 1 {
		return "", "", fmt.Errorf("%s %s %s: the words are there %d times, want once:\n%s", m.number, m.dir, m.decl, times, m.old)
	}
	return path, text, nil
}

// run runs short tests, and returns what they print.
func run(ctx context.Context, tests []string, flags ...string) (string, error) {
	args := append([]string{"test", "-short", "-vet=off"}, flags...)
	for _, test := range tests {
		if !strings.HasPrefix(test, "-") {
			test = "./" + test
		}
		args = append(args, test)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	// -short makes a fifth of rapid's tries. A failure is neither made small at length, nor kept and tried again on the next mutant.
	cmd.Env = append(os.Environ(), "RAPID_CHECKS=500", "RAPID_SHRINKTIME=1s", "RAPID_NOFAILFILE=true")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

var failure = regexp.MustCompile(`(?m)^(?:--- FAIL: (\w+)|(panic: .*|fatal error: .*))`)

// try runs the tests over a mutant, and returns those that say its number and the others that fail.
func (m mutant) try(ctx context.Context, dir string) (own, others []string, out string, err error) {
	path, text, err := m.apply()
	if err != nil {
		return nil, nil, "", err
	}
	changed, overlay := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err := errors.Join(err, os.WriteFile(changed, []byte(text), 0o600), os.WriteFile(overlay, list, 0o600)); err != nil {
		return nil, nil, "", err
	}
	out, err = run(ctx, m.tests, "-timeout=5m", "-overlay="+overlay)
	if strings.Contains(out, "[build failed]") {
		return nil, nil, "", fmt.Errorf("%s %s %s does not compile:\n%s", m.number, m.dir, m.decl, out)
	}
	starts := append(failure.FindAllStringSubmatchIndex(out, -1), []int{len(out)})
	for i, at := range starts[:len(starts)-1] {
		if at[2] < 0 {
			others = append(others, out[at[4]:at[5]])
		} else if test := out[at[2]:at[3]]; strings.Contains(out[at[0]:starts[i+1][0]], m.number+":") {
			own = append(own, test)
		} else {
			others = append(others, test)
		}
	}
	if len(own) == 0 {
		return nil, nil, out, fmt.Errorf("%s %s %s: no failure says so (others: %s):\n-%s+%s%w", m.number, m.dir, m.decl,
			strings.Join(others, ", "), m.old, m.new, err)
	}
	return own, others, out, ctx.Err()
}

// all tries the mutants and prints a row for each.
func all(ctx context.Context, only []string, verbose bool, page string) error {
	mutants, err := parse(table)
	if err := errors.Join(err, complete(mutants)); err != nil {
		return err
	}
	var fits []error
	for _, m := range mutants {
		_, _, err := m.apply()
		fits = append(fits, err)
	}
	if err := errors.Join(fits...); err != nil {
		return err
	}
	mutants = slices.DeleteFunc(mutants, func(m mutant) bool {
		return len(only) > 0 && !slices.Contains(only, m.number) && !slices.Contains(only, m.number[:1])
	})
	var tests []string
	for _, m := range mutants {
		tests = append(tests, m.tests...)
	}
	slices.Sort(tests)
	tests = slices.DeleteFunc(slices.Compact(tests), func(test string) bool { return test[0] == '-' })
	if out, err := run(ctx, tests, "-timeout=15m"); err != nil {
		return fmt.Errorf("the tests fail with nothing broken: %w\n%s", err, out)
	}
	tmp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	var rows strings.Builder
	var wrong []error
	for _, m := range mutants {
		own, others, out, err := m.try(ctx, tmp)
		if wrong = append(wrong, err); ctx.Err() != nil {
			break
		}
		row := fmt.Sprintf("| %s | %s | %s | %s |\n", m.number, strings.ReplaceAll(m.what, "|", `\|`), strings.Join(own, ", "),
			strings.Join(others, ", "))
		rows.WriteString(row)
		fmt.Print(row)
		if verbose {
			fmt.Printf("-%s+%s%s\n", m.old, m.new, out)
		}
	}
	if err := errors.Join(wrong...); err != nil || page == "" {
		return err
	}
	text, err := os.ReadFile(page)
	before, _, found := strings.Cut(string(text), "\n|---")
	if err != nil || !found {
		return fmt.Errorf("no table in %s: %w", page, err)
	}
	return os.WriteFile(page, []byte(before+"\n|---|---|---|---|\n"+rows.String()),
		0o644) //nolint:gosec // a page of the documentation
}

func main() {
	only := flag.Bool("only", false, "try the `numbers` or letters behind it alone")
	verbose := flag.Bool("v", false, "print the mutants and the output of the tests")
	page := flag.String("table", "", "write the rows of all mutants into this `page`")
	flag.Parse()
	if *only != (flag.NArg() > 0) || *only && *page != "" {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := all(ctx, flag.Args(), *verbose, *page)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}
