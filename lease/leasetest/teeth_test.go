package leasetest

// This file breaks a plain ledger on purpose, one way at a time, and demands that the suite notices.

import (
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stopbank/stopbank/lease"
)

// witness is a testing.TB that remembers a failure instead of passing it on.
type witness struct {
	testing.TB
	mu     sync.Mutex
	failed bool
	said   []string
}

func (w *witness) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = true
	w.said = append(w.said, fmt.Sprintf(format, args...))
}

func (w *witness) Helper()                           {}
func (w *witness) Log(...any)                        {}
func (w *witness) Logf(string, ...any)               {}
func (w *witness) Fail()                             { w.note("") }
func (w *witness) FailNow()                          { w.note(""); runtime.Goexit() }
func (w *witness) Error(args ...any)                 { w.note("%s", fmt.Sprint(args...)) }
func (w *witness) Errorf(format string, args ...any) { w.note(format, args...) }
func (w *witness) Fatal(args ...any)                 { w.note("%s", fmt.Sprint(args...)); runtime.Goexit() }
func (w *witness) Fatalf(format string, args ...any) { w.note(format, args...); runtime.Goexit() }
func (w *witness) Failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// watch runs a check to its end and reports whether it failed, and what it said.
func watch(t *testing.T, c check, open Open) (failed bool, said string) {
	w := &witness{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.run(w, open)
	}()
	<-done
	return w.Failed(), strings.Join(w.said, "; ")
}

// quiet keeps rapid from writing a fail file for what is meant to fail and from shrinking it for long, and lets it try
// long enough also under -short.
func quiet(t *testing.T) {
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.shrinktime": "10ms", "rapid.checks": "300"} {
		f := flag.Lookup(name)
		before := f.Value.String()
		if err := f.Value.Set(value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := f.Value.Set(before); err != nil {
				t.Error(err)
			}
		})
	}
}

// A plain ledger without a fault passes, so that what follows is about the faults.
func TestThePlainLedgerPasses(t *testing.T) {
	Run(t, func(_ testing.TB, cfg lease.Config) lease.Ledger { return newPlain(cfg, "") })
}

func TestTheSuiteHasTeeth(t *testing.T) {
	quiet(t)
	const (
		scenario = 1 << iota
		random
		concurrent
	)
	for fault, by := range map[string]int{
		"a token comes back after Compact":              scenario | random,
		"tokens are unique in a domain only":            scenario | random | concurrent,
		"the backlog is last in first out":              scenario | random | concurrent,
		"the backlog holds duplicates":                  scenario | random | concurrent,
		"Compact forgets what is done":                  scenario | random | concurrent,
		"a given-up offset is not terminal":             scenario | random | concurrent,
		"two owners":                                    scenario | random | concurrent,
		"two owners, by a race":                         concurrent,
		"a lost update":                                 concurrent,
		"any token succeeds":                            scenario | random | concurrent,
		"Succeed hands off":                             scenario | random | concurrent,
		"one attempt too many":                          scenario | random | concurrent,
		"GiveUp gives one more chance":                  scenario,
		"a retry renews the lease":                      scenario | random,
		"Reclaim keeps the token":                       scenario | random | concurrent,
		"Reclaim forgets the retries":                   scenario | random,
		"what was released can be finished":             scenario | random | concurrent,
		"Release does nothing":                          scenario | random | concurrent,
		"Release counts a retry":                        scenario | random | concurrent,
		"Release renews the lease":                      scenario | random,
		"Release rotates the token":                     scenario | random | concurrent,
		"Release puts the offset back into the backlog": scenario | random | concurrent,
		"Reclaim of what was released counts a retry":   scenario | random,
		"Reclaim gives no owner":                        scenario | random | concurrent,
		"the outcome is not recorded":                   scenario | random | concurrent,
		"Compact drops what waits":                      scenario | random | concurrent,
		"the floor goes down":                           scenario | random,
		"Busy hands out the token":                      scenario | random | concurrent,
		"a full backlog drops its head":                 scenario | random | concurrent,
		"full comes before known":                       scenario | random | concurrent,
		"an acquire overtakes the backlog":              scenario | random | concurrent,
		"the view is no copy":                           scenario,
		"a done context is not looked at":               scenario,
		"Ready yields what is held":                     scenario | random,
		"Held misses leases with a backlog":             scenario | random,
		"Offer grants nothing but says it did":          scenario | random | concurrent,
	} {
		t.Run(fault, func(t *testing.T) {
			open := func(_ testing.TB, cfg lease.Config) lease.Ledger { return newPlain(cfg, fault) }
			caught, who := 0, []string{}
			for _, c := range checks() {
				part := scenario
				switch c.name {
				case "Machine":
					part = random
				case "Histories":
					part = concurrent
				}
				failed, said := watch(t, c, open)
				// Chance may spare a ledger once.
				for tries := 1; !failed && part != scenario && by&part != 0 && tries < 6; tries++ {
					failed, said = watch(t, c, open)
				}
				if failed {
					caught |= part
					who = append(who, c.name)
					t.Logf("%s: %.300s", c.name, said)
				}
			}
			if caught&by != by {
				t.Errorf("caught by %v only", who)
			}
		})
	}
}

// A check that ends by FailNow ends its goroutine, and the witness has it all the same.
func TestTheWitnessSeesGoexit(t *testing.T) {
	failed, said := watch(t, check{"x", func(t testing.TB, _ Open) {
		defer func() { t.Log("a deferred call runs") }()
		t.Fatal("said")
	}}, nil)
	if !failed || said != "said" {
		t.Fatalf("%t %q", failed, said)
	}
	if failed, _ := watch(t, check{"x", func(testing.TB, Open) {}}, nil); failed {
		t.Fatal("a failure out of nothing")
	}
}
