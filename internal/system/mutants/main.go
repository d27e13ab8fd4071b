// Mutants breaks each numbered invariant on purpose, in a scratch copy of the repository, and shows which tests fail.
//
// A mutant is a small change of one declaration, kept in a text file next to this program. The tests that carry the invariant's
// number must fail on it; the run fails if a mutant does not compile or survives those tests. With -only, the other tests of the
// layer run as well, the long ones separately, and the output says whether other tests also failed, and which numbers have no
// mutant that only their own tests catch. With -table, that result is written into a page; rows of other numbers stay.
//
// Usage: go run ./internal/system/mutants [-only] [-table FILE] [-v] [NUMBER or LETTER...]
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed *.txt
var files embed.FS

// layers has the directories with the tests of a letter, or of a number with directories of its own.
var layers = map[string][]string{
	"A":   {"./admission"},
	"L":   {"./lease"},
	"M":   {"./warden/monitor"},
	"C":   {"./warden/control"},
	"Q":   {"./warden/limiter", "./warden/internal/queue"},
	"B":   {"./warden/bulkhead"},
	"D":   {"./lease/dispatch"},
	"L13": {"./lease/leasepg"}, "L14": {"./lease/leasepg"}, "L15": {"./lease/deadletter", "./lease/leasetest/lettertest"},
	"L16": {"./lease/leasepg"},
	"R":   {"./warden/retry", "./warden/wardenhttp", "./warden/wardengrpc"},
	"H":   {"./warden/wardenhttp", "./admission/admissionhttp/inflight"},
}

// places returns the directories with the tests of a number.
func places(number string) []string {
	if own := layers[number]; own != nil {
		return own
	}
	return layers[number[:1]]
}

func main() {
	only := flag.Bool("only", false, "also run the other tests of the layer, and report whether they fail")
	verbose := flag.Bool("v", false, "print the output of the tests")
	page := flag.String("table", "", "write the result of -only, which it implies, into this `file`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *only || *page != "", *verbose, *page, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run tries the mutants of the requested numbers, or all.
func run(ctx context.Context, only, verbose bool, page string, numbers []string) error {
	all, err := load()
	if err != nil {
		return err
	}
	defined, err := defined("docs")
	if err != nil {
		return err
	}
	if err := complete(all, defined); err != nil && len(numbers) == 0 {
		return err
	}
	if len(numbers) > 0 {
		all = slices.DeleteFunc(all, func(m mutant) bool {
			return !slices.Contains(numbers, m.number) && !slices.Contains(numbers, m.number[:1])
		})
	}
	if len(all) == 0 {
		return fmt.Errorf("no mutants of %v", numbers)
	}
	dir, err := scratch(ctx)
	defer func() { _ = os.RemoveAll(dir) }()
	if err != nil {
		return err
	}
	r := runner{dir: dir, only: only, most: map[string]time.Duration{}}

	var wrong []string
	alone := map[string]bool{} // numbers with a mutant that only their own tests catch
	rows := map[string][]string{}
	for _, m := range all {
		v, err := r.try(ctx, m)
		if err != nil {
			if wrong = append(wrong, fmt.Sprintf("%s %s: %v", m.number, m.place(), err)); ctx.Err() != nil {
				break
			}
			continue
		}
		alone[m.number] = alone[m.number] || v.alone()
		rows[m.number] = append(rows[m.number], row(m, v))
		fmt.Printf("%-4s %-36s %-9s %s", m.number, m.place(), v.verdict(only), strings.Join(v.tests, " "))
		if len(v.others) > 0 {
			fmt.Print("; also by ", strings.Join(v.others, " "))
		}
		fmt.Println()
		if verbose {
			fmt.Println(m.text(), "\n", v.said)
		}
		if len(v.tests) == 0 {
			wrong = append(wrong, m.number+" "+m.place()+": lives\n"+m.text())
		}
	}
	if only {
		for _, n := range slices.SortedFunc(maps.Keys(alone), byNumber) {
			if !alone[n] {
				fmt.Printf("%-4s every mutant is noticed by tests of other numbers as well\n", n)
			}
		}
	}
	if page != "" {
		if err := write(page, rows, defined); err != nil {
			return err
		}
	}
	fmt.Printf("%d mutants of %d invariants, %d complaints\n", len(all), len(alone), len(wrong))
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\n"))
	}
	return nil
}

// verdict is the result of a mutant.
type verdict struct {
	tests  []string // of its number, that failed
	tried  bool     // the other tests of the layer ran
	others []string // first of those that failed
	said   string
}

func (v verdict) alone() bool { return v.tried && len(v.tests) > 0 && len(v.others) == 0 }

func (v verdict) verdict(only bool) string {
	switch {
	case len(v.tests) == 0:
		return "LIVES"
	case only && v.alone():
		return "only by"
	default:
		return "killed by"
	}
}

// A runner tries mutants in a scratch copy.
type runner struct {
	dir  string
	only bool
	most map[string]time.Duration // time limit for the tests of a package
}

// try applies m, runs the tests, and reverts it.
func (r *runner) try(ctx context.Context, m mutant) (v verdict, err error) {
	for _, dir := range places(m.number) {
		if err := r.measure(ctx, dir); err != nil {
			return v, err
		}
	}
	path, original, changed, err := m.apply(r.dir)
	if err != nil {
		return v, err
	}
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, os.WriteFile(path, []byte(original), 0o600)) }()

	v.tried = r.only
	for _, dir := range places(m.number) {
		p, err := r.build(ctx, dir)
		if err != nil {
			return v, fmt.Errorf("does not compile: %w", err)
		}
		out, err := p.run(ctx, "-test.run", pattern(m.number))
		v.said += out
		if err != nil {
			v.tests = append(v.tests, failed(out)...)
		}
		if !r.only || len(v.others) > 0 {
			continue
		}
		if out, err = p.run(ctx, "-test.short", "-test.failfast", "-test.skip", pattern(m.number)); err != nil {
			v.others = failed(out)
		}
		v.said += out
	}
	return v, ctx.Err()
}

// measure runs the unbroken tests once: they must pass, and their time bounds the runs of mutants that hang.
func (r *runner) measure(ctx context.Context, dir string) error {
	if _, known := r.most[dir]; known {
		return nil
	}
	p, err := r.build(ctx, dir)
	if err != nil {
		return err
	}
	p.most = 10 * time.Minute
	began := time.Now()
	if out, err := p.run(ctx); err != nil {
		return fmt.Errorf("%s fails with nothing broken: %w\n%s", dir, err, out)
	}
	r.most[dir] = 20*time.Second + 2*time.Since(began)
	return nil
}

// A program is the compiled tests of one package.
type program struct {
	dir, file string
	most      time.Duration // time limit of a run
}

// build compiles the tests of a package of the copy.
func (r *runner) build(ctx context.Context, dir string) (program, error) {
	p := program{dir: filepath.Join(r.dir, dir), file: filepath.Join(r.dir, "mutant.test"), most: r.most[dir]}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", p.file, ".")
	cmd.Dir = p.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return p, fmt.Errorf("%w\n%s", err, out)
	}
	return p, nil
}

// run runs the tests that args select.
func (p program) run(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, p.most+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.file, append(args, "-test.timeout", p.most.String())...)
	cmd.Dir = p.dir
	// Do not shrink failures, and do not replay recorded ones on the next mutant.
	cmd.Env = append(os.Environ(), "PWD="+p.dir, "GOMEMLIMIT=3GiB", "RAPID_SHRINKTIME=1s", "RAPID_NOFAILFILE=true")
	if slices.Contains(args, "-test.short") { // -short makes a fifth of rapid's tries: compensate
		cmd.Env = append(cmd.Env, "RAPID_CHECKS=500")
	}
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// pattern matches the names of the tests with a number, as internal/system requires them.
func pattern(number string) string {
	return `^(Test|Fuzz)(Property|Fuzz|Race|Stress)?([ALMCQBDHR][0-9]+_?)*` + number + `([^0-9]|$)`
}

var (
	failure = regexp.MustCompile(`(?m)^--- FAIL: (\w+)|^panic: test timed out|^fatal error: (.*)|^panic: (.*)`)
	inTest  = regexp.MustCompile(`\.((?:Test|Fuzz|Example)[A-Z]\d+_?\w*)[.(]`) // in a stack trace
)

// failed returns the tests that failed, or the event that ended the run before a test could fail.
func failed(out string) []string {
	var names []string
	for _, at := range failure.FindAllStringSubmatchIndex(out, -1) {
		name := "(" + strings.TrimSpace(out[at[0]:at[1]]) + ")"
		if at[2] >= 0 {
			name = out[at[2]:at[3]]
		} else if in := inTest.FindStringSubmatch(out[at[1]:]); in != nil {
			name = in[1]
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 && strings.Contains(out, "FAIL") {
		names = append(names, "(the run failed)") // goleak, os.Exit
	}
	return names
}

// scratch copies tracked and new files into a directory that is removed at the end.
func scratch(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return "", err
	}
	list, err := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return dir, err
	}
	for file := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		content, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted and not yet committed
		} else if err != nil {
			return dir, err
		}
		to := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return dir, err
		}
		if err := os.WriteFile(to, content, 0o600); err != nil {
			return dir, err
		}
	}
	return dir, nil
}

// byNumber sorts A2 before A10.
func byNumber(a, b string) int {
	if a[0] != b[0] {
		return int(a[0]) - int(b[0])
	}
	x, _ := strconv.Atoi(a[1:])
	y, _ := strconv.Atoi(b[1:])
	return x - y
}
