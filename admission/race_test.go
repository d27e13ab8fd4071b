// Many goroutines at one gate at once, for the race detector and for what only real parallelism shows.

package admission

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustNew(t testing.TB, cfg Config) *Gate {
	t.Helper()
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// limits exercise every shape: no line, one line, several, with and without credits left in the central word.
var limits = []int{1, 2, 3, 8, 9, 16, 33, 300}

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

// TestA1_NeverAboveTheLimit counts from inside, beside the gate's own count, while all ways of entering and leaving mix.
func TestA1_NeverAboveTheLimit(t *testing.T) {
	forLimits(t, func(t *testing.T, limit int) {
		g := mustNew(t, Config{Limit: limit})
		var inside atomic.Int64
		enter := func() {
			if n := inside.Add(1); n > int64(limit) {
				t.Errorf("%d inside, limit %d", n, limit)
			}
		}
		leave := func() { inside.Add(-1) }
		together(8, func(i int) {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			var mine []Permit
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
							t.Error("the first Release was refused")
						}
						mine = mine[:n-1]
					}
				case 3:
					_ = g.Do(func() error { enter(); leave(); return nil })
				case 4:
					var pr Promise[int]
					if _, err := Submit(g, func() Stage[int] { enter(); return &pr }); err == nil {
						leave()
						pr.Resolve(1)
					}
				case 5:
					if n := g.InFlight(); n < len(mine) || n > limit {
						t.Errorf("InFlight %d; I alone hold %d of %d", n, len(mine), limit)
					}
				}
			}
			for _, p := range mine {
				leave()
				p.Release()
			}
		})
		if s := g.Stats(); s.InFlight != 0 || s.Admitted != s.Released {
			t.Fatalf("at rest: %+v", s)
		}
	})
}

// TestA3_ManyCopiesOneRelease has copies of one permit released at once, while the freed place is taken again.
func TestA3_ManyCopiesOneRelease(t *testing.T) {
	forLimits(t, func(t *testing.T, limit int) {
		g := mustNew(t, Config{Limit: limit})
		var old []Permit
		for range rounds / 8 {
			p, err := g.TryAcquire()
			if err != nil {
				t.Fatal(err)
			}
			var wins atomic.Int64
			together(4, func(i int) {
				if p.Release() {
					wins.Add(1)
					if q, err := g.TryAcquire(); err != nil {
						t.Errorf("the released place was not there: %v", err)
					} else {
						defer q.Release()
					}
				}
				for _, q := range old {
					if q.Release() {
						t.Error("a stale permit released something")
					}
				}
			})
			if wins.Load() != 1 {
				t.Fatalf("%d releases of one permit", wins.Load())
			}
			if old = append(old, p); len(old) > 20 {
				old = old[1:]
			}
		}
		if s := g.Stats(); s.InFlight != 0 || s.Released != s.Admitted {
			t.Fatalf("at rest: %+v", s)
		}
	})
}

// TestA5_EveryPlaceCanBeTaken: one caller alone finds every place, wherever the credits lie.
func TestA5_EveryPlaceCanBeTaken(t *testing.T) {
	for limit := 1; limit <= 300; limit++ {
		g := mustNew(t, Config{Limit: limit})
		for held := range limit {
			if _, err := g.TryAcquire(); err != nil {
				t.Fatalf("limit %d: refused with %d in flight", limit, held)
			}
		}
		if _, err := g.TryAcquire(); err == nil {
			t.Fatalf("limit %d: one too many", limit)
		}
	}
}

// TestA5_NoRefusalBelowTheLimit has as many goroutines as places, each in flight at most once: none may ever be refused,
// although the credits move between lines and the gate changes modes all the time.
func TestA5_NoRefusalBelowTheLimit(t *testing.T) {
	forLimits(t, func(t *testing.T, limit int) {
		g := mustNew(t, Config{Limit: limit})
		stop := make(chan struct{})
		var shaker sync.WaitGroup
		shaker.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				g.mu.Lock()
				if i%2 == 0 {
					g.gather()
				} else {
					g.spreadOut()
				}
				g.mu.Unlock()
			}
		})
		together(limit, func(i int) {
			for j := range rounds / min(limit, 50) {
				if (i+j)%2 == 0 {
					if err := g.Do(func() error { return nil }); err != nil {
						t.Errorf("Do: %v", err)
					}
					continue
				}
				p, err := g.TryAcquire()
				if err != nil {
					t.Errorf("TryAcquire: %v", err)
				}
				p.Release()
			}
		})
		close(stop)
		shaker.Wait()
		if s := g.Stats(); s.Rejected != 0 || s.InFlight != 0 {
			t.Fatalf("at rest: %+v", s)
		}
	})
}

// TestA8_CountsAgreeAtRest counts every answer in the callers and compares.
func TestA8_CountsAgreeAtRest(t *testing.T) {
	forLimits(t, func(t *testing.T, limit int) {
		g := mustNew(t, Config{Limit: limit})
		var admitted, refused atomic.Uint64
		together(6, func(i int) {
			for j := range rounds {
				p, err := g.TryAcquire()
				if err != nil {
					refused.Add(1)
					continue
				}
				admitted.Add(1)
				if (i+j)%3 == 0 {
					if g.Do(func() error { return nil }) == nil {
						admitted.Add(1)
					} else {
						refused.Add(1)
					}
				}
				p.Release()
			}
		})
		s := g.Stats()
		if s.Admitted != admitted.Load() || s.Rejected != refused.Load() || s.Released != s.Admitted || s.InFlight != 0 {
			t.Fatalf("%+v; callers saw %d admitted, %d refused", s, admitted.Load(), refused.Load())
		}
	})
}

// TestA8_StatsAreOneInstant reads while others work: what never goes down must not, and what adds up must.
func TestA8_StatsAreOneInstant(t *testing.T) {
	forLimits(t, func(t *testing.T, limit int) {
		g := mustNew(t, Config{Limit: limit})
		stop := make(chan struct{})
		var workers sync.WaitGroup
		for range 3 {
			workers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						p, _ := g.TryAcquire()
						_ = g.Do(func() error { return nil })
						p.Release()
					}
				}
			})
		}
		var last Stats
		for range rounds / 4 {
			s := g.Stats()
			switch {
			case s.Admitted != s.Released+uint64(s.InFlight), s.InFlight < 0, s.InFlight > limit:
				t.Errorf("does not add up: %+v", s)
			case s.Admitted < last.Admitted, s.Released < last.Released, s.Rejected < last.Rejected:
				t.Errorf("went down: %+v after %+v", s, last)
			}
			last = s
		}
		close(stop)
		workers.Wait()
	})
}

// TestA10_CloseThenDrain closes a busy gate: once Drain has returned, nothing is in flight and nothing ever will be.
func TestA10_CloseThenDrain(t *testing.T) {
	forLimits(t, func(t *testing.T, limit int) {
		for range 50 {
			g := mustNew(t, Config{Limit: limit})
			var inside atomic.Int64
			var drained atomic.Bool
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for {
						p, err := g.TryAcquire()
						var r *RejectedError
						if errors.As(err, &r) && r.Reason == Closed {
							return
						}
						if err != nil {
							continue
						}
						inside.Add(1)
						if drained.Load() {
							t.Error("admitted after Drain")
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
					if n := inside.Load(); n != 0 || g.InFlight() != 0 {
						t.Errorf("%d inside after Drain, InFlight %d", n, g.InFlight())
					}
				})
			}
			wg.Wait()
		}
	})
}
