package main

// The output of the tests, parsed into a table.

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// A reading is a number that a test prints.
type reading struct {
	what string
	expr string // its first group is the number
	each bool   // every match counts one
	last bool   // only the last match counts; otherwise the sum of all
	// optional: the test says that some servers do not support this.
	optional string
}

func count(what, expr string) reading { return reading{what: what, expr: expr} }

// faults are the readings of lease/leasetest/faults.
func faults(engine string) []reading {
	var all []reading
	for _, name := range []string{
		"killed between swap and reply", "a record that kills its process", "holder stopped, reclaimed, resumed", "many processes race for one domain",
		"reply dropped by the network", "server restarted under load", "all at once",
	} {
		q := regexp.QuoteMeta(name)
		all = append(all, reading{what: "faults, " + engine + ": " + name, expr: q + ` +\d+ rounds +(\d+) faults`, optional: q + ` +left out`})
	}
	return all
}

// owners are the readings of lease/leasetest/ownertest.
func owners(engine string) []reading {
	var all []reading
	for _, name := range []string{
		"a member joins", "a member leaves", "a member is killed", "a member frozen past its lease", "a member frozen for less",
		"a member frozen until others did its work", "everybody frozen", "many come and go at once", "handlers fail, panic, hang and kill",
		"the server restarted",
	} {
		q := "owners: " + regexp.QuoteMeta(name)
		all = append(all, reading{what: "rounds of owners, " + engine + ": " + name, expr: q + ` +(\d+) rounds`, optional: q + ` +left out`})
	}
	return append(all, count("records of owners, "+engine, `owners: all \d+ rounds, (\d+) records`))
}

// table is the summary of a run: rows in order, and the failures.
type table struct {
	rows                                               []row
	checked                                            int // processes that ended with goleak's check
	lost, doubled, disordered, stuck, leaked, violated int
	findings                                           []string
}

type row struct {
	what, note string
	n          int
}

var (
	lostRow    = regexp.MustCompile(`(?m)^.*\ball +\d+ rounds.*\| lost (\d+), doubled (\d+),(?: disordered (\d+), stuck (\d+),)? other violations (\d+)`)
	leak       = regexp.MustCompile(`found unexpected goroutines`)
	seenNoTest = regexp.MustCompile(`(?m)^testing: warning: no tests to run`)
	skipped    = regexp.MustCompile(`(?m)^\s*--- SKIP: (\S+).*\n\s*(.*)`)
)

// take parses the output of one run.
func (t *table) take(j *job, out string, err error, seed uint64) {
	violated := func(format string, args ...any) {
		t.violated++
		t.findings = append(t.findings, fmt.Sprintf("%s %s (seed %d): %s\n%s", j.dir, j.run, seed, fmt.Sprintf(format, args...), tail(out)))
	}
	if skip := skipped.FindStringSubmatch(out); skip != nil && err == nil && !strings.Contains(out, "--- PASS") {
		for _, r := range j.reads {
			t.add(r.what, 0, "not done here: "+skip[2])
		}
		return
	}
	if leak.MatchString(out) {
		t.leaked++
	}
	if j.leaks {
		t.checked++
	}
	for _, m := range lostRow.FindAllStringSubmatch(out, -1) {
		t.lost, t.doubled, t.violated = t.lost+number(m[1]), t.doubled+number(m[2]), t.violated+number(m[5])
		if m[3] != "" {
			t.disordered, t.stuck = t.disordered+number(m[3]), t.stuck+number(m[4])
		}
	}
	switch {
	case err != nil:
		violated("%v", err)
	case seenNoTest.MatchString(out) && j.run != "^$":
		violated("there is no such test")
	}
	for _, r := range j.reads {
		matches := regexp.MustCompile(r.expr).FindAllStringSubmatch(out, -1)
		switch {
		case len(matches) > 0 && r.last:
			t.add(r.what, number(matches[len(matches)-1][1]), "")
		case len(matches) > 0:
			n := 0
			for _, m := range matches {
				if r.each {
					n++
				} else {
					n += number(m[1])
				}
			}
			t.add(r.what, n, "")
		case r.optional != "" && regexp.MustCompile(r.optional).MatchString(out):
			t.add(r.what, 0, "not done: not with this server")
		default:
			violated("no %q to be read", r.what)
		}
	}
	if len(j.reads) > 0 && strings.Contains(strings.Join(j.args, " "), "-torture.time") && lostRow.FindString(out) == "" {
		violated("no counts of lost and doubled")
	}
}

func (t *table) add(what string, n int, note string) {
	for i := range t.rows {
		if t.rows[i].what == what {
			t.rows[i].n += n
			return
		}
	}
	t.rows = append(t.rows, row{what, note, n})
}

// print prints the table, and returns an error unless every failure count is 0.
func (t *table) print(w io.Writer) error {
	for _, r := range t.rows {
		if r.note != "" {
			fmt.Fprintf(w, "%12s  %s (%s)\n", "-", r.what, r.note)
		} else {
			fmt.Fprintf(w, "%12d  %s\n", r.n, r.what)
		}
	}
	fmt.Fprintf(w, "%12d  processes whose goroutines were looked at when they ended\n\n", t.checked)
	fmt.Fprintf(w, "lost %d, doubled %d, disordered %d, stuck %d, goroutine leaks %d, violations %d\n",
		t.lost, t.doubled, t.disordered, t.stuck, t.leaked, t.violated)
	if t.lost+t.doubled+t.disordered+t.stuck+t.leaked+t.violated == 0 {
		return nil
	}
	return errors.New("not all of that is 0\n" + strings.Join(t.findings, "\n"))
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return -1 << 30 // an expression without a number in its group
	}
	return n
}

// tail is the end of a long output.
func tail(out string) string { return out[max(0, len(out)-3000):] }
