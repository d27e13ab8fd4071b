// SPDX-License-Identifier: Apache-2.0

// The safety valves of compartments (B12, B13): who is let pass, whose slots that takes, and what is told.

package bulkhead

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/decision"
)

// valveOps are the moves of the machine, with changes of the mode among them.
func valveOps() []int { return []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10} }

func TestPropertyModeMachine(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := rapid.SampledFrom(shapes()).Draw(rt, "shape")
		script := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) move {
			return move{rapid.SampledFrom(valveOps()).Draw(rt, "op"), rapid.IntRange(0, 31).Draw(rt, "a"),
				rapid.IntRange(0, 31).Draw(rt, "b")}
		}), 20, 120).Draw(rt, "script")
		if failed := drive(t, cfg, script, nil, nil); failed != "" {
			rt.Fatal(failed)
		}
	})
}

// TestModeLongHistories makes sure that the machine gets to every judgement, and to calls that are left over when a compartment
// enforces its bounds again.
func TestModeLongHistories(t *testing.T) {
	const histories, steps = 40, 300
	seen := map[string]int{}
	for i := range histories {
		rng := rand.New(rand.NewPCG(12, uint64(i)))
		script := make([]move, steps)
		for j := range script {
			script[j] = move{valveOps()[rng.IntN(11)], rng.IntN(32), rng.IntN(32)}
		}
		failed := drive(t, shapes()[i%len(shapes())], script, nil, func(x *machine) {
			for _, p := range x.m.pools {
				for why, n := range p.wouldBe {
					seen[why] += int(n)
				}
				if p.withoutSlot() > 0 {
					seen["beyond, "+p.now.Mode.String()]++
				}
			}
		})
		if failed != "" {
			t.Fatalf("history %d: %s", i, failed)
		}
	}
	for _, want := range []string{"queue_overflow", "timeout_queued", "beyond, enforce", "beyond, dry_run", "beyond, bypass"} {
		if t.Logf("%s: %d", want, seen[want]); seen[want] < 3 {
			t.Errorf("%s occurred %d times", want, seen[want])
		}
	}
}

// put puts a compartment into a mode.
func put(t *testing.T, s *Set, name string, mode decision.Mode) {
	t.Helper()
	p := s.Plan()
	p.Compartments[slices.IndexFunc(p.Compartments, func(sh Share) bool { return sh.Name == name })].Mode = mode
	must(s.Resize(p))(t)
	synctest.Wait()
}

// TestTheOthersKeepTheirs floods a compartment that is bypassed: it has what it may have, the others have what is theirs, and
// when it enforces its bounds again nobody is admitted before as many as those bounds allow are left.
func TestTheOthersKeepTheirs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := must(New(Config{Total: 4, Compartments: []CompartmentConfig{
			{Name: "flooded", Guaranteed: 1, Max: 2, MaxQueue: 9, Mode: decision.Bypass},
			{Name: "other", Guaranteed: 2, Max: 3, MaxQueue: 1},
		}}))(t)
		flooded, other := s.Compartment("flooded"), s.Compartment("other")
		hold := func(c *Compartment) Permit {
			t.Helper()
			_, p, err := c.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		var running []Permit
		for range 10 {
			running = append(running, hold(flooded))
		}
		if c := flooded.Snapshot(); c.InFlight != 10 || c.WithoutSlot != 8 || c.Borrowed != 1 || s.Snapshot().InFlight != 10 {
			t.Fatalf("B12: %+v", c)
		}
		defer hold(other).Release(nil)
		defer hold(other).Release(nil)

		put(t, s, "flooded", decision.Enforce)
		var entered sync.WaitGroup
		in := make(chan Permit, 1)
		entered.Go(func() {
			_, p, err := flooded.Acquire(t.Context())
			if err != nil {
				t.Error(err)
			}
			in <- p
		})
		for i, p := range running {
			synctest.Wait()
			if c := flooded.Snapshot(); len(in) != 0 && i < 9 || c.Queued != 1 && i < 9 {
				t.Fatalf("B12: after %d ended: %+v", i, c)
			}
			p.Release(nil)
		}
		entered.Wait()
		(<-in).Release(nil)
		if c := flooded.Snapshot(); c.InFlight != 0 || c.WithoutSlot != 0 || c.Rejected["queue_overflow"] != 0 {
			t.Fatalf("B12: %+v", c)
		}
	})
}

// TestCallsLeftFromTheBypassHoldUpTheirTenantOnly: one tenant has as many as it may have, none with a slot, and is first in
// line. A rapid history (B12) found that everybody behind it waited.
func TestCallsLeftFromTheBypassHoldUpTheirTenantOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		s := must(New(Config{Total: 4, Compartments: []CompartmentConfig{
			{Name: "c", Max: 4, MaxQueue: 2, Mode: decision.Bypass, Tenants: TenantsConfig{Max: 2, Keys: 4}},
		}}))(t)
		s.Apply(decision.ControlDecision{Seq: 1, TargetConcurrency: 0})
		full, other := s.Compartment("c").Tenant("full"), s.Compartment("c").Tenant("other")
		w.fill(full, 2) // without a slot
		put(t, s, "c", decision.Enforce)
		first, second := w.send(full, "first"), w.send(other, "second")
		s.Apply(decision.ControlDecision{Seq: 2, TargetConcurrency: 4})
		synctest.Wait()
		if !first.waits() || !second.runs() {
			t.Errorf("B8: the full tenant's call waits: %v; the other's runs: %v", first.waits(), second.runs())
		}
	})
}

// TestWhatIsRejectedAllTheSame: an open breaker, re-entry, and the end of a context.
func TestWhatIsRejectedAllTheSame(t *testing.T) {
	closed := errors.New("closed")
	broken := false
	s := must(New(Config{Total: 1, Compartments: []CompartmentConfig{{Name: "c", Guaranteed: 1, Mode: decision.DryRun,
		Breaker: asked(func() (func(error), error) {
			if broken {
				return nil, closed
			}
			return func(error) {}, nil
		})}}}))(t)
	c := s.Compartment("c")
	for _, mode := range []decision.Mode{decision.DryRun, decision.Bypass} {
		put2 := s.Plan()
		put2.Compartments[0].Mode = mode
		must(s.Resize(put2))(t)
		ctx, p, err := c.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.Acquire(ctx); !errors.Is(err, decision.ErrReentry) {
			t.Errorf("B12: %s: re-entry: %v", mode, err)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, _, err := c.Acquire(gone); !errors.Is(err, decision.ErrRejected) {
			t.Errorf("B12: %s: a context that has ended: %v", mode, err)
		}
		broken = true
		if _, _, err := c.Acquire(t.Context()); reasonOf(err) != BreakerOpen {
			t.Errorf("B12: %s: an open breaker: %v", mode, err)
		}
		broken = false
		p.Release(nil)
		if snap := c.Snapshot(); snap.InFlight != 0 || snap.WithoutSlot != 0 || c.unwanted != 0 {
			t.Errorf("B12: %s: at rest %+v", mode, snap)
		}
	}
}

type asked func() (func(error), error)

func (a asked) Allow() (func(error), error) { return a() }

// TestTold looks for a judgement wherever one is told.
func TestTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		s := must(New(Config{Total: 2, Observer: observed(func(e Event) {
			switch {
			case e.Kind == ModeChanged:
				told = append(told, e.Limiter+" "+e.Mode.String())
			case e.WouldReject != "":
				told = append(told, string(e.Outcome)+", "+string(e.WouldReject))
			}
		}), Compartments: []CompartmentConfig{{Name: "c", Guaranteed: 2, MaxQueue: 1, MaxWait: time.Second,
			Mode: decision.DryRun}}}))(t)
		c := s.Compartment("c")
		run := func(n int) {
			var all sync.WaitGroup
			for range n {
				all.Go(func() {
					_, _ = Do(t.Context(), c, func(context.Context) (int, error) { time.Sleep(8 * time.Second); return 1, nil })
				})
				synctest.Wait()
			}
			all.Wait()
		}
		run(4) // two have slots, one would wait, one would not
		run(3) // that a call takes 8 s is known now
		s.Apply(decision.ControlDecision{Seq: 1, TargetConcurrency: 2, ShedProbability: 1})
		run(3)
		put(t, s, "c", decision.Enforce)
		want := []string{
			"c dry_run", "succeeded, queue_overflow", "succeeded, timeout_queued", "succeeded, pressure_high", "c enforce",
		}
		if !slices.Equal(told, want) {
			t.Errorf("B13: told %q, want %q", told, want)
		}
		snap := c.Snapshot()
		if got := fmt.Sprint(snap.WouldReject, len(snap.Rejected)+len(snap.Left),
			snap.Admitted); got != "map[pressure_high:1 queue_overflow:1 timeout_queued:1] 0 10" {
			t.Error(got)
		}
		var recent []string
		for _, e := range s.Recent() {
			recent = append(recent, fmt.Sprint(e.Outcome, " ", e.Mode, " ", e.WouldReject, " ", e.Bound, " ", e.Limit, " ", e.InFlight,
				" ", e.QueueLen))
		}
		if want := []string{
			"started dry_run queue_overflow own_slots 2 4 1", "started dry_run timeout_queued own_slots 2 3 0",
			"started dry_run pressure_high own_slots 2 3 0",
		}; !slices.Equal(recent, want) {
			t.Errorf("B13: recent %q, want %q", recent, want)
		}
	})
}

type observed func(Event)

func (o observed) Observe(e Event) { o(e) }
