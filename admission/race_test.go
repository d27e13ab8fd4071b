// SPDX-License-Identifier: Apache-2.0

// Many goroutines at one gate at once, for the race detector and for what only real parallelism shows.

package admission_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/admission"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustNew(t testing.TB, cfg admission.Config) *admission.Gate {
	t.Helper()
	return must(admission.New(cfg))(t)
}

// limits are around the numbers of goroutines in these tests, and around the slots that are allocated together.
var limits = []int{1, 2, 3, 8, 31, 33, 300}

func forLimits(t *testing.T, f func(t *testing.T, limit int)) {
	for _, limit := range limits {
		t.Run(fmt.Sprint(limit), func(t *testing.T) { f(t, limit) })
	}
}

const rounds = 4000

// together runs f n times at once and waits.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// TestNeverAboveTheLimit counts from inside, beside the gate's own count, while all ways of entering and leaving mix.
func TestNeverAboveTheLimit(t *testing.T) {
	forLimits(t, func(t *testing.T, limit int) {
		g := mustNew(t, admission.Config{Limit: limit})
		var inside atomic.Int64
		enter := func() {
			if n := inside.Add(1); n > int64(limit) {
				t.Errorf("A1: %d inside, limit %d", n, limit)
			}
		}
		leave := func() { inside.Add(-1) }
		together(8, func(i int) {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			var mine []admission.Permit
			for range rounds {
				switch rng.IntN(6) {
				case 0, 1:
					if p, err := g.TryAcquire(); err == nil {
						enter()
						mine = append(mine, p)
					}
				case 2:
					if n := len(mine); n > 0 {
						leave()
						if !mine[n-1].Release() {
							t.Error("A1: the first Release was rejected")
						}
						mine = mine[:n-1]
					}
				case 3:
					_ = g.Do(func() error { enter(); leave(); return nil })
				case 4:
					var end func()
					if err := g.Submit(func(done func()) error { enter(); end = done; return nil }); err == nil {
						leave()
						end()
						end()
					}
				case 5:
					if n := g.Stats().InFlight; n < len(mine) || n > limit {
						t.Errorf("A1: %d in flight; I alone hold %d of %d", n, len(mine), limit)
					}
				}
			}
			for _, p := range mine {
				leave()
				p.Release()
			}
		})
		if s := g.Stats(); s.InFlight != 0 || s.Admitted != s.Released {
			t.Fatalf("A1: at rest: %+v", s)
		}
	})
}

// TestManyCopiesOneRelease has copies of one permit released at once, while the freed slot is taken again.
func TestManyCopiesOneRelease(t *testing.T) {
	forLimits(t, func(t *testing.T, limit int) {
		g := mustNew(t, admission.Config{Limit: limit})
		var old []admission.Permit
		for range rounds / 8 {
			p := must(g.TryAcquire())(t)
			var wins atomic.Int64
			together(4, func(i int) {
				if p.Release() {
					wins.Add(1)
					if q, err := g.TryAcquire(); err != nil {
						t.Errorf("A3: the released slot was not there: %v", err)
					} else {
						defer q.Release()
					}
				}
				for _, q := range old {
					if q.Release() {
						t.Error("A3: a stale permit released something")
					}
				}
			})
			if wins.Load() != 1 {
				t.Fatalf("A3: %d releases of one permit", wins.Load())
			}
			if old = append(old, p); len(old) > 20 {
				old = old[1:]
			}
		}
		s := g.Stats()
		if s.InFlight != 0 || s.Released != s.Admitted {
			t.Fatalf("A3: at rest: %+v", s)
		}
	})
}

// TestEverySlotCanBeTaken: one caller alone finds every slot, and again after giving them back.
func TestEverySlotCanBeTaken(t *testing.T) {
	for limit := 1; limit <= 300; limit++ {
		g := mustNew(t, admission.Config{Limit: limit})
		for range 2 {
			var ps []admission.Permit
			for held := range limit {
				p, err := g.TryAcquire()
				if err != nil {
					t.Fatalf("A5: limit %d: rejected with %d in flight", limit, held)
				}
				ps = append(ps, p)
			}
			if _, err := g.TryAcquire(); err == nil {
				t.Fatalf("A5: limit %d: one too many", limit)
			}
			for _, p := range ps {
				p.Release()
			}
		}
	}
}

// TestNoRejectionBelowTheLimit has as many goroutines as slots, each in flight at most once: none may ever be rejected.
func TestNoRejectionBelowTheLimit(t *testing.T) {
	forLimits(t, func(t *testing.T, limit int) {
		g := mustNew(t, admission.Config{Limit: limit})
		together(limit, func(i int) {
			for j := range rounds / min(limit, 50) {
				if (i+j)%2 == 0 {
					if err := g.Do(func() error { return nil }); err != nil {
						t.Errorf("A5: Do: %v", err)
					}
					continue
				}
				p, err := g.TryAcquire()
				if err != nil {
					t.Errorf("A5: TryAcquire: %v", err)
				}
				p.Release()
			}
		})
		if s := g.Stats(); s.Rejected != 0 || s.InFlight != 0 {
			t.Fatalf("A5: at rest: %+v", s)
		}
	})
}

// known is what callers know of their calls, counted on either side of each step.
type known struct{ begun, admitted, rejected, leaving, released atomic.Uint64 }

// call goes through g in one of two ways, with copies of a permit that are released again.
func (k *known) call(g *admission.Gate, way int) {
	k.begun.Add(1)
	if way == 0 {
		p, err := g.TryAcquire()
		if err != nil {
			k.rejected.Add(1)
			return
		}
		k.admitted.Add(1)
		k.leaving.Add(1)
		p.Release()
		k.released.Add(1)
		p.Release()
		return
	}
	if err := g.Do(func() error { k.admitted.Add(1); k.leaving.Add(1); return nil }); err != nil {
		k.rejected.Add(1)
		return
	}
	k.released.Add(1)
}

// TestPropertyCountersUnderLoad looks at Stats while load runs and the gate is closed at some
// time: no counter falls, sums are right, and each counter lies between what callers knew before the look and what they
// had begun after it.
func TestPropertyCountersUnderLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := admission.Config{Limit: rapid.IntRange(1, 5).Draw(t, "limit")}
		looks := rapid.IntRange(1000, 4000).Draw(t, "looks")
		closeAt := rapid.IntRange(looks/2, 2*looks).Draw(t, "closed at look")
		g := must(admission.New(cfg))(t)
		var k known
		var rest atomic.Bool
		var load sync.WaitGroup
		for i := range 2 {
			load.Go(func() {
				for way := i; !rest.Load(); way++ {
					k.call(g, way%2)
					runtime.Gosched()
				}
			})
		}
		defer func() { rest.Store(true); load.Wait() }()
		var last admission.Stats
		for look := 0; look <= looks; look++ {
			if look == closeAt {
				g.Close()
			}
			if look == looks {
				rest.Store(true)
				load.Wait()
			}
			admitted, rejected, released := k.admitted.Load(), k.rejected.Load(), k.released.Load()
			s := g.Stats()
			begun, leaving := k.begun.Load(), k.leaving.Load()
			switch {
			case s.Admitted < last.Admitted, s.Released < last.Released, s.Rejected < last.Rejected,
				s.RejectedClosed < last.RejectedClosed:
				t.Fatalf("A8: went down: %+v after %+v", s, last)
			case s.Admitted != s.Released+uint64(s.InFlight), s.InFlight < 0, s.InFlight > s.Limit, s.Rejected < s.RejectedClosed:
				t.Fatalf("A8: does not add up: %+v", s)
			case s.Admitted < admitted, s.Rejected < rejected, s.Released < released:
				t.Fatalf("A8: %+v; callers knew of %d admitted, %d rejected, %d released", s, admitted, rejected, released)
			case s.Admitted+s.Rejected > begun, s.Released > leaving:
				t.Fatalf("A8: %+v; only %d calls had begun, %d were leaving", s, begun, leaving)
			case look == looks && (s.Admitted+s.Rejected != begun || s.InFlight != 0):
				t.Fatalf("A8: at rest: %+v; %d calls, %d left", s, begun, leaving)
			}
			last = s
			runtime.Gosched() // as the load does: one processor is enough
		}
	})
}

// TestCloseThenDrain closes a busy gate: once Drain has returned, nothing is in flight and nothing ever will be.
func TestCloseThenDrain(t *testing.T) {
	forLimits(t, func(t *testing.T, limit int) {
		for range 50 {
			g := mustNew(t, admission.Config{Limit: limit})
			var inside atomic.Int64
			var drained atomic.Bool
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for {
						p, err := g.TryAcquire()
						var r *admission.RejectedError
						if errors.As(err, &r) && r.Reason == admission.Closed {
							return
						}
						if err != nil {
							continue
						}
						inside.Add(1)
						if drained.Load() {
							t.Error("A10: admitted after Drain")
						}
						inside.Add(-1)
						p.Release()
					}
				})
			}
			for range 2 {
				wg.Go(func() {
					g.Close()
					if err := g.Drain(context.Background()); err != nil {
						t.Error(err)
					}
					drained.Store(true)
					if n := inside.Load(); n != 0 || g.Stats().InFlight != 0 {
						t.Errorf("A10: %d inside after Drain, InFlight %d", n, g.Stats().InFlight)
					}
				})
			}
			wg.Wait()
		}
	})
}
