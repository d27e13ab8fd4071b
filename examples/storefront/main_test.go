package main

// The whole demo, made small: the story holds, ends when interrupted, leaves nothing behind, and refuses bad arguments.

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// short is the incident in about three seconds per way, or some times slower: the same story with a smaller pool, thin
// traffic and patient clients. The number of requests does not depend on slower.
func short(slower int) scenario {
	of := func(ms int) time.Duration { return time.Duration(ms*slower) * time.Millisecond }
	sc := scenario{
		scale:     50 / slower,
		conns:     [routes]int{checkout: 8, products: 6, analytics: 3, admin: 4},
		perSecond: [routes]float64{checkout: 20, products: 15, analytics: 50, admin: 10},
		lasts:     [phases]time.Duration{of(600), of(1400), of(300)},
		report:    [phases]time.Duration{of(2), of(1400), of(2)},
		acquire:   of(150),
		patience:  of(5000),
	}
	for r := range routes {
		sc.perSecond[r] /= float64(slower)
	}
	return sc
}

// The claims of the demo with wide limits. Where the machine is so busy that even these fail, the incident is told more
// slowly, which a broken shop does not survive either.
func TestTheIncident(t *testing.T) {
	wide := limits{lost: 0.65, kept: 0.75, exhausted: 0.3}
	measure := func(sc scenario, open openWay) result {
		moments := 0
		res, err := runWay(t.Context(), sc, 1, open, func(moment) { moments++ })
		if err != nil {
			t.Fatal(err)
		}
		if res.firstOther != nil {
			t.Errorf("a request failed in an unforeseen way: %v", res.firstOther)
		}
		if moments == 0 {
			t.Error("no progress was shown")
		}
		return res
	}
	for slower := 1; ; slower *= 2 {
		sc := short(slower)
		shared, isolated := measure(sc, openShared), measure(sc, openIsolated)
		for p := range phases {
			for r := range routes {
				s, i := shared.figures[p][r], isolated.figures[p][r]
				if s.requests() == 0 || s.requests() != i.requests() {
					t.Errorf("%s %s: %d and %d requests, want the same traffic", p, r, s.requests(), i.requests())
				}
				if s.count[gateRejected] != 0 {
					t.Errorf("%s %s: %d refused by a gate, but there are none", p, r, s.count[gateRejected])
				}
			}
		}
		if _, holds := judge(shared, shared, wide); holds {
			t.Error("the verdict holds without isolation")
		}
		if _, holds := judge(isolated, isolated, wide); holds {
			t.Error("the verdict holds without a shared pool")
		}
		findings, holds := judge(shared, isolated, wide)
		if holds {
			return
		}
		t.Logf("%d times slower: %+v\nshared   %+v\nisolated %+v", slower, findings, shared.figures, isolated.figures)
		if slower == 4 {
			t.Fatal("the verdict does not hold")
		}
	}
}

// cut ends the context when it is written to with a line that contains the mark.
type cut struct {
	bytes.Buffer
	mark string
	end  func()
}

func (c *cut) Write(p []byte) (int, error) {
	if strings.Contains(string(p), c.mark) {
		c.end()
	}
	return c.Buffer.Write(p)
}

func TestInterruptLeavesNothing(t *testing.T) {
	for name, mark := range map[string]string{"before the traffic": "1 of 2", "while slow queries run": "1s  "} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			sc := short(1)
			sc.lasts[healthy] = time.Minute
			sc.report[healthy] = time.Hour // nobody can wait for these to end
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var stderr bytes.Buffer
			stdout := &cut{mark: mark, end: cancel}
			code := run(ctx, nil, sc, stdout, &stderr)
			if said := stderr.String(); code != 130 || !strings.Contains(said, "interrupted") {
				t.Errorf("exit code %d, want 130: %s", code, said)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
			if strings.Contains(stdout.String(), "VERDICT") {
				t.Error("a verdict on half a run")
			}
		})
	}
}

func TestArguments(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"-help"}, 0, "-seed"},
		{[]string{"-seed", "many"}, 2, `"many"`},
		{[]string{"-seed", "-1"}, 2, `"-1"`},
		{[]string{"-fast"}, 2, "-fast"},
		{[]string{"fast"}, 2, `"fast"`},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), c.args, short(1), &stdout, &stderr); code != c.code {
			t.Errorf("%v: exit code %d, want %d", c.args, code, c.code)
		}
		if !strings.Contains(stderr.String(), c.says) || stdout.Len() != 0 {
			t.Errorf("%v: says %q and prints %q, want %q and nothing", c.args, stderr.String(), stdout.String(), c.says)
		}
	}
}

// The demo's own limits are not asked of a busy machine here; what is asked is that exit code and output agree.
func TestJSON(t *testing.T) {
	var stdout, stderr bytes.Buffer
	sc := short(1)
	sc.lasts = [phases]time.Duration{100 * time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond}
	code := run(t.Context(), []string{"-json", "-seed", "7"}, sc, &stdout, &stderr)
	var out struct {
		Seed     uint64
		Rows     []map[string]any
		Findings []finding
		Holds    bool
	}
	if err := json.Unmarshal(stdout.Bytes(), &out); err != nil {
		t.Fatalf("%v in %s", err, stdout.String())
	}
	if out.Seed != 7 || len(out.Rows) != 2*int(phases)*int(routes) || len(out.Findings) == 0 {
		t.Errorf("seed %d, %d rows, %d findings", out.Seed, len(out.Rows), len(out.Findings))
	}
	if out.Holds != (code == 0) {
		t.Errorf("holds: %v, but exit code %d", out.Holds, code)
	}
	if !strings.Contains(stderr.String(), "2 of 2") {
		t.Errorf("no progress on standard error: %q", stderr.String())
	}
}
