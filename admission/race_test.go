// SPDX-License-Identifier: Apache-2.0

// Many goroutines at one gate at once, for the race detector and for what only real parallelism shows.

package admission_test

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/admission"
)

// known is what callers know of their calls, counted on either side of each step.
type known struct{ begun, admitted, rejected, leaving, released, inside, permits, wins atomic.Uint64 }

// call goes through g in one of three ways, with copies of a permit that are released at once, and returns how many were inside
// then.
func (k *known) call(g *admission.Gate, way int) (inside uint64) {
	visit := func() {
		k.admitted.Add(1)
		inside = k.inside.Add(1)
		runtime.Gosched()
		k.inside.Add(^uint64(0))
		k.leaving.Add(1)
	}
	k.begun.Add(1)
	var err error
	switch way % 3 {
	case 0:
		var p admission.Permit
		if p, err = g.TryAcquire(); err == nil {
			visit()
			k.permits.Add(1)
			together(2, func(int) {
				if p.Release() {
					k.wins.Add(1)
				}
			})
		}
	case 1:
		err = g.Do(func() error { visit(); return nil })
	case 2:
		err = g.Submit(func(done func()) error { visit(); done(); done(); return nil })
	}
	if err != nil {
		k.rejected.Add(1)
	} else {
		k.released.Add(1)
	}
	return inside
}

// TestPropertyCountersUnderLoad looks at Stats while load runs: no counter falls, sums are right, and each counter lies between what
// callers knew before the look and what they had begun after it. Then it closes the gate under the load and drains it.
func TestPropertyCountersUnderLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 5).Draw(t, "limit")
		g := must(admission.New(admission.Config{Limit: limit}))(t)
		var k known
		var rest atomic.Bool
		var most [4]uint64
		var load sync.WaitGroup
		for i := range most {
			load.Go(func() {
				for way := i; !rest.Load(); way++ {
					most[i] = max(most[i], k.call(g, way))
					runtime.Gosched()
				}
			})
		}
		atRest := sync.OnceFunc(func() { rest.Store(true); load.Wait() })
		defer atRest()
		var last admission.Stats
		look := func() {
			admitted, rejected, released := k.admitted.Load(), k.rejected.Load(), k.released.Load()
			s := g.Stats()
			begun, leaving := k.begun.Load(), k.leaving.Load()
			switch {
			case s.Admitted < last.Admitted, s.Released < last.Released, s.Rejected < last.Rejected,
				s.RejectedClosed < last.RejectedClosed:
				t.Fatalf("A8: went down: %+v after %+v", s, last)
			case s.Admitted != s.Released+uint64(s.InFlight), s.InFlight < 0, s.InFlight > s.Limit, s.Rejected < s.RejectedClosed:
				t.Fatalf("A8: does not add up: %+v", s)
			case limit >= len(most) && s.Rejected > s.RejectedClosed:
				t.Fatalf("A5: %+v, though never more than %d were inside", s, len(most))
			case s.Admitted < admitted, s.Rejected < rejected, s.Released < released:
				t.Fatalf("A8: %+v; callers knew of %d admitted, %d rejected, %d released", s, admitted, rejected, released)
			case s.Admitted+s.Rejected > begun, s.Released > leaving:
				t.Fatalf("A8: %+v; only %d calls had begun, %d were leaving", s, begun, leaving)
			}
			last = s
			runtime.Gosched() // as the load does: one processor is enough
		}
		for range rapid.IntRange(1000, 3000).Draw(t, "looks") {
			look()
		}
		together(2, func(int) { g.Close(); noError(t, g.Drain(t.Context())) })
		admitted := k.admitted.Load()
		for range 100 {
			look()
		}
		atRest()
		look()
		if k.admitted.Load() != admitted || last.InFlight != 0 {
			t.Fatalf("A10: %d admitted when it was drained, %d in the end: %+v", admitted, k.admitted.Load(), last)
		}
		if k.wins.Load() != k.permits.Load() {
			t.Fatalf("A3: %d releases of %d permits", k.wins.Load(), k.permits.Load())
		}
		if begun := k.begun.Load(); last.Admitted+last.Rejected != begun {
			t.Fatalf("A8: at rest: %+v; %d calls", last, begun)
		}
		if most := slices.Max(most[:]); most > uint64(limit) {
			t.Fatalf("A1: %d inside, limit %d", most, limit)
		}
	})
}
