package main

// What is read from the outputs of tests, and what is not taken for a 0.

import (
	"errors"
	"io"
	"strings"
	"testing"
)

const faultLines = `=== RUN   TestTorture
    x_test.go:1: killed between swap and reply            7 rounds     40 faults      84 offsets      0 redone     0 refused downstream     0 fenced | lost 0, doubled 0, other violations 0
    x_test.go:1: server restarted under load          left out: not with this server
    x_test.go:1: all                                     7 rounds     40 faults      84 offsets      0 redone     0 refused downstream     0 fenced | lost 1, doubled 2, other violations 3
--- PASS: TestTorture (0.1s)
PASS
`

const ownerLines = `=== RUN   TestTortureOwners
    x_test.go:1: owners: a member joins                                    7 rounds
    x_test.go:1: owners: the server restarted                         left out: not with this engine
    x_test.go:1: owners: all 7 rounds, 84 records, 1 redone under a greater token, 2 refused by the fence, 3 dead letters | lost 1, doubled 2, disordered 4, stuck 5, other violations 3
--- PASS: TestTortureOwners (0.1s)
PASS
`

func TestTake(t *testing.T) {
	steps := job{dir: "x", run: "^T$", reads: []reading{count("steps", `(\d+) steps`)}, leaks: true}
	engine := job{dir: "x", run: "^TestTorture$", once: true, args: []string{"-torture.time=%s"}, reads: faults("E")[:1]}
	engine.reads = append(engine.reads, faults("E")[5])
	all := owners("E")
	group := owning("x", "E", 0, false)
	group.reads = []reading{all[0], all[len(all)-2], all[len(all)-1]}
	for _, c := range []struct {
		name, out string
		job       job
		err       error
		prints    []string
	}{
		{"sum", "a: 3 steps\nb: 4 steps\n", steps, nil, []string{"           7  steps", "           1  processes", "lost 0, doubled 0, disordered 0, stuck 0, goroutine leaks 0, violations 0"}},
		{"nothing to read", "ok\n", steps, nil, []string{"violations 1"}},
		{"no such test", "testing: warning: no tests to run\n3 steps\n", steps, nil, []string{"violations 1"}},
		{"failure", "3 steps\n--- FAIL: T\n", steps, errors.New("exit status 1"), []string{"violations 1"}},
		{"leak", "3 steps\ngoleak: Errors on successful test run: found unexpected goroutines:\n", steps, errors.New("exit status 1"), []string{"leaks 1, violations 1"}},
		{"skipped", "=== RUN   T\n--- SKIP: T (0.00s)\n    x_test.go:1: no PostgreSQL\nPASS\n", steps, nil, []string{"-  steps (not done here: x_test.go:1: no PostgreSQL)", "violations 0"}},
		{"faults", faultLines, engine, nil, []string{"40  faults, E: killed", "-  faults, E: server restarted under load (not done", "lost 1, doubled 2, disordered 0, stuck 0, goroutine leaks 0, violations 3"}},
		{"owners", ownerLines, group, nil, []string{
			"7  rounds of owners, E: a member joins", "-  rounds of owners, E: the server restarted (not done", "84  records of owners",
			"lost 1, doubled 2, disordered 4, stuck 5, goroutine leaks 0, violations 3",
		}},
		{"no owners", "PASS\n", group, nil, []string{"violations 4"}},
		{"no faults", "PASS\n", engine, nil, []string{"violations 3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var all table
			all.take(&c.job, c.out, c.err, 1)
			var b strings.Builder
			err := all.print(&b)
			for _, want := range c.prints {
				if !strings.Contains(b.String(), want) {
					t.Errorf("printed\n%swithout %q", b.String(), want)
				}
			}
			if zeros := strings.Contains(b.String(), "lost 0, doubled 0, disordered 0, stuck 0, goroutine leaks 0, violations 0"); zeros != (err == nil) {
				t.Errorf("%v after\n%s", err, b.String())
			}
		})
	}
	if new(table).print(io.Discard) != nil {
		t.Error("an empty table is an error") // run never prints one
	}
}

func TestSharesAddUpToOne(t *testing.T) {
	sum := 0.0
	for _, j := range jobs {
		sum += j.share
	}
	if sum < 0.999 || sum > 1.001 {
		t.Errorf("the shares add up to %v", sum)
	}
}
