// SPDX-License-Identifier: Apache-2.0

// The compartments of a set under a warden: one that becomes slow is lowered alone, and never the total (B14); what slows all of
// them lowers all.

package warden

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/monitor"
)

// A department is a compartment of a shop with its customers, and what was seen of it.
type department struct {
	name               string
	slots              int
	load               float64       // share of its slots that is used, on average, while nothing waits
	takes              time.Duration // by a call, on average, while nothing waits
	hangs              bool          // until the shop closes, or the call's context ends
	pool               chan struct{} // connections that only it uses; nil: none
	limit              int           // the least that it had
	answered, rejected int
	why                error // of the last that was rejected
}

// A shop is a set under a warden on an idle machine, with its customers.
type shop struct {
	lend        bool          // what is idle
	timeout     time.Duration // of the compartments
	set         *bulkhead.Set
	warden      *Warden
	inside      bool // calls are tasks of the warden as well
	departments []*department
	shared      chan struct{} // connections that all use; nil: none
	mu          sync.Mutex    // guards what was seen, and the departments' pools
	total       int           // the least effective total, and limit of the warden
	may, looks  int           // how many may run, added up over looks
}

func newShop() *shop {
	s := &shop{departments: []*department{
		{name: "checkout", slots: 50}, {name: "browse", slots: 30}, {name: "analytics", slots: 15}, {name: "admin", slots: 5},
	}}
	for _, d := range s.departments {
		d.load, d.takes = 0.5, 50*time.Millisecond
	}
	return s
}

// connect gives d connections that only it uses, and connections are those that it has.
func (s *shop) connect(d *department, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.pool = make(chan struct{}, n)
}

func (s *shop) connections(d *department) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return d.pool
}

// open runs the shop under a warden with all defaults for the length of f. It is called in a bubble of virtual time.
func (s *shop) open(t *testing.T, cfg Config, f func(serve func(length time.Duration))) {
	compartments := bulkhead.Config{Total: 100}
	for _, d := range s.departments {
		c := bulkhead.CompartmentConfig{Name: d.name, Guaranteed: d.slots, MaxQueue: 20, MaxWait: time.Second, Timeout: s.timeout}
		if s.lend {
			c.Max, c.Lendable = d.slots+20, d.slots/2
		}
		compartments.Compartments = append(compartments.Compartments, c)
	}
	s.set = must(bulkhead.New(compartments))(t)
	cfg.ApplyTo = s.set
	idle(t, cfg, func(ctx context.Context, w *Warden) {
		s.warden = w
		r := rand.New(rand.NewPCG(1, 2)) // the customers are the same ones each time
		f(func(length time.Duration) { s.serve(ctx, r, length) })
		for s.set.Snapshot().InFlight > 0 { // nobody waits for them any more
			time.Sleep(time.Second)
		}
	})
}

// serve lets customers come, and looks at the limits.
func (s *shop) serve(ctx context.Context, r *rand.Rand, length time.Duration) {
	s.total, s.may, s.looks = 1<<30, 0, 0
	end := time.Now().Add(length)
	closing, done := context.WithDeadline(context.Background(), end)
	defer done()
	var all sync.WaitGroup
	for _, d := range s.departments {
		d.limit, d.answered, d.rejected = 1<<30, 0, 0
		mine := rand.New(rand.NewPCG(r.Uint64(), 0))
		all.Go(func() {
			for d.load > 0 && time.Now().Before(end) {
				takes := time.Duration((0.5 + mine.Float64()) * float64(d.takes))
				all.Go(func() { s.call(ctx, closing, d, takes) })
				time.Sleep(time.Duration(mine.ExpFloat64() * float64(d.takes) / (d.load * float64(d.slots))))
			}
		})
	}
	for time.Now().Before(end) {
		time.Sleep(50 * time.Millisecond)
		now := s.set.Snapshot()
		s.total = min(s.total, now.EffectiveTotal, s.warden.Limiter().Stats().Target)
		all := 0
		for i, c := range now.Compartments {
			s.departments[i].limit = min(s.departments[i].limit, c.Effective.Max)
			all += c.Effective.Max
		}
		s.may += min(all, now.EffectiveTotal)
		s.looks++
	}
	all.Wait()
}

// call is one customer of d.
func (s *shop) call(ctx, closing context.Context, d *department, takes time.Duration) {
	work := func(ctx context.Context) (int, error) {
		for _, pool := range []chan struct{}{s.connections(d), s.shared} {
			if pool != nil {
				pool <- struct{}{}
				defer func() { <-pool }()
			}
		}
		if d.hangs {
			select {
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-closing.Done():
				return 0, nil
			}
		}
		time.Sleep(takes)
		return 0, nil
	}
	inside := func(ctx context.Context) (int, error) { return bulkhead.Do(ctx, s.set.Compartment(d.name), work) }
	var err error
	if s.inside {
		_, err = Do(ctx, s.warden, Task{Name: d.name}, inside)
	} else {
		_, err = inside(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		d.answered++
	} else {
		d.rejected++
		d.why = err
	}
}

func (s *shop) String() string {
	all := []string{fmt.Sprintf("total %d", s.total)}
	for _, d := range s.departments {
		all = append(all, fmt.Sprintf("%s: limit %d, answered %d, rejected %d", d.name, d.limit, d.answered, d.rejected))
	}
	return strings.Join(all, "; ")
}

// One compartment becomes slower, hangs, or waits for connections that only it uses: whichever it is, and whoever its customers
// are, the total stays, and nobody else is rejected who lends nothing.
func TestPropertyASlowCompartmentIsLoweredAlone(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(label string, of ...int) int { return rapid.SampledFrom(of).Draw(rt, label) }
		s := newShop()
		s.lend, s.timeout = rapid.Bool().Draw(rt, "lends"), time.Duration(draw("timeout in s", 0, 2))*time.Second
		s.inside = rapid.Bool().Draw(rt, "inside tasks of the warden")
		for _, d := range s.departments {
			d.load = float64(draw(d.name+"'s load in %", 0, 20, 40, 60)) / 100
			d.takes = time.Duration(draw("its calls take ms", 50, 100, 400)) * time.Millisecond
		}
		slow := s.departments[draw("slow", 0, 1, 2, 3)]
		slow.load = max(slow.load, 0.4)
		pool := monitor.Pool{Name: "own", Part: slow.name, Stats: func() monitor.PoolStats {
			all := s.connections(slow)
			return monitor.PoolStats{InUse: len(all), Max: cap(all)}
		}}
		what := rapid.SampledFrom([]string{
			"3 times slower", "10 times slower", "100 times slower", "hangs", "a connection",
		}).Draw(rt, "what happens")
		synctest.Test(t, func(t *testing.T) {
			s.open(t, Config{Pools: []monitor.Pool{pool}}, func(serve func(time.Duration)) {
				s.connect(slow, 100)
				serve(6 * time.Second)
				switch times := 0; what {
				case "hangs":
					slow.hangs = true
				case "a connection":
					s.connect(slow, 1)
				default:
					_, _ = fmt.Sscan(what, &times)
					slow.takes *= time.Duration(times)
					slow.load *= float64(times)
				}
				serve(12 * time.Second)
			})
		})
		for _, d := range s.departments {
			if s.total < 100 || d != slow && d.rejected > 0 && !s.lend { // who lends waits for the borrower
				rt.Fatalf("B14: %s, %s: %v", slow.name, what, s)
			}
		}
	})
}

// What all compartments wait for lowers them all, so that no more run than can be served, and as much is answered as there are
// connections for. Whether the total falls or the compartments one by one, and whether it soon tries again with all, is chance: a
// mean of three shops is judged.
func TestWhatAllCompartmentsShareLowersAll(t *testing.T) {
	const room, shops = 15, 3
	for _, lend := range []bool{false, true} {
		t.Run(fmt.Sprintf("lends %v", lend), func(t *testing.T) {
			may := 0
			for range shops {
				synctest.Test(t, func(t *testing.T) {
					s := newShop()
					s.lend = lend
					s.open(t, Config{}, func(serve func(time.Duration)) {
						s.shared = make(chan struct{}, 100)
						serve(10 * time.Second)
						s.shared = make(chan struct{}, room)
						for _, d := range s.departments {
							d.load = 0.9
						}
						serve(20 * time.Second)
						answered := 0
						for _, d := range s.departments {
							answered += d.answered
						}
						if can := room * int(20*time.Second/(50*time.Millisecond)); answered < can*9/10 {
							t.Errorf("%d answered, of %d that could be: %v", answered, can, s)
						}
						may += s.may / s.looks
					})
				})
			}
			if may > 75*shops {
				t.Errorf("B14: on average %d may run, of %d connections", may/shops, room)
			}
		})
	}
}

// A pool that only one compartment uses lowers that compartment to what the pool has connections for, without a trial.
func TestAPoolOfOneCompartment(t *testing.T) {
	for _, part := range []string{"analytics", ""} {
		t.Run("used by "+part, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShop()
				d := s.departments[2]
				pool := monitor.Pool{Name: "reports-db", Part: part, Stats: func() monitor.PoolStats {
					return monitor.PoolStats{InUse: len(s.connections(d)), Max: 6}
				}}
				s.open(t, Config{Pools: []monitor.Pool{pool}}, func(serve func(time.Duration)) {
					s.connect(d, 6)
					d.load = 0.2
					serve(10 * time.Second)
					d.load = 2
					serve(20 * time.Second)
					var why *Rejection
					named := errors.As(d.why, &why) &&
						strings.Contains(fmt.Sprint(why.Decision.Reasons), "reports-db: 6 of 6 in use")
					switch limit := s.set.Compartment("analytics").Snapshot().Effective.Max; {
					case part == "" && s.total < 100: // the comment of package control says so
					case part == "" || s.total < 100 || limit < 7 || limit > 8 || !named:
						t.Errorf("B14: %d slots for 6 connections, the last was told %v: %v", limit, d.why, s)
					}
				})
			})
		})
	}
}

// A compartment that has become slower for good has its limit back.
func TestASlowCompartmentIsTriedAndLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop()
		s.open(t, Config{}, func(serve func(time.Duration)) {
			serve(10 * time.Second)
			d := s.departments[2]
			d.takes, d.load = 10*d.takes, 5
			serve(20 * time.Second)
			if now := s.set.Compartment("analytics").Snapshot().Effective.Max; d.limit >= 15 || now != 15 {
				t.Errorf("the limit was %d and is %d: %v", d.limit, now, s)
			}
		})
	})
}

// New asks a set for its executions; one whose sampler is replaced leaves that to its owner.
func TestNewFeedsFromASet(t *testing.T) {
	for _, s := range []sampler{nil, must(monitor.New())(t)} {
		set := must(
			bulkhead.New(bulkhead.Config{Total: 3, Compartments: []bulkhead.CompartmentConfig{{Name: "a", Guaranteed: 3}}}),
		)(t)
		w := mustNew(t, Config{ApplyTo: set, Sampler: s})
		_ = must(bulkhead.Do(t.Context(), set.Compartment("a"), func(context.Context) (int, error) { return 0, nil }))(t)
		w.turnLocked(false)
		now, parts := w.Latest().Sample, 0
		if s == nil {
			parts = 1
		}
		if len(now.Parts) != parts || now.Service.Count != uint64(parts) {
			t.Errorf("B14: %d parts, %d executions, want %d", len(now.Parts), now.Service.Count, parts)
		}
	}
}
