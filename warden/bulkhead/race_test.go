// SPDX-License-Identifier: Apache-2.0

// Many goroutines at once: the hard bounds hold at every instant, and at rest nothing is lost.

package bulkhead

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// TestRace lets calls of every kind, resizes and decisions meet. Each function counts itself: an admission must
// never see more than the largest total there was.
func TestRace(t *testing.T) {
	const most = 8
	s := mustNew(t, Config{Total: most, Compartments: []CompartmentConfig{
		{Name: "gold", Guaranteed: 3, Lendable: 2, Max: 6, MaxQueue: 4, Criticality: decision.Critical},
		{Name: "silver", Guaranteed: 2, Lendable: 2, Max: 8, MaxQueue: 4, MaxWait: time.Millisecond},
		{Name: "bronze", Guaranteed: 1, Max: 4, Timeout: 50 * time.Millisecond, MaxQueue: 2},
		{Name: "many", Guaranteed: 2, Max: 8, MaxQueue: 2, Tenants: TenantsConfig{Max: 3, Keys: 4}},
	}})
	var inside, worst atomic.Int64
	var all sync.WaitGroup
	for i, c := range compartments(s) {
		for j := range 5 {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), uint64(j)))
				for range 1500 {
					c := c.Tenant(fmt.Sprint(rng.IntN(8)))
					ctx, cancel := context.WithCancel(context.Background())
					if rng.IntN(8) == 0 {
						go cancel()
					}
					yields := rng.IntN(4)
					_, err := Do(ctx, c, func(context.Context) (int, error) {
						n := inside.Add(1)
						for w := worst.Load(); n > w && !worst.CompareAndSwap(w, n); w = worst.Load() {
						}
						for range yields {
							runtime.Gosched()
						}
						inside.Add(-1)
						return 0, nil
					})
					if cancel(); err != nil && !errors.Is(err, decision.ErrRejected) && !errors.Is(err, ErrTimeout) &&
						!errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				}
			})
		}
	}
	done := make(chan struct{})
	var control sync.WaitGroup
	control.Go(func() {
		rng := rand.New(rand.NewPCG(9, 9))
		for seq := uint64(1); ; seq++ {
			select {
			case <-done:
				s.Apply(bound(seq, most))
				return
			default:
			}
			s.Apply(bound(seq, 1+rng.IntN(2*most)))
			p := s.Plan()
			p.Compartments[0].Guaranteed = 2 + rng.IntN(2)
			p.Compartments[0].Lendable = rng.IntN(3)
			if _, err := s.Resize(p); err != nil {
				t.Error(err)
			}
			s.Snapshot()
			s.Recent()
			runtime.Gosched()
		}
	})
	all.Wait()
	close(done)
	control.Wait()
	for s.Snapshot().InFlight > 0 { // what was abandoned
		runtime.Gosched()
	}
	if n := worst.Load(); n > most {
		t.Errorf("%d were inside at once, of %d", n, most)
	}
	rest(t, s, 0)
	unreserved := most
	for _, p := range s.pools {
		unreserved -= p.reservedLocked()
	}
	if s.held != 0 || s.unreserved != unreserved || s.waiting != 0 {
		t.Errorf("%d held, unreserved %d, want %d, %d wait", s.held, s.unreserved, unreserved, s.waiting)
	}
}

// TestTheOwnerIsNextWhateverElseItAsks gives a lent slot back while an owner and a borrower wait for it, and while more calls of
// the owner come, each of which asks for it and may just have been rejected: the owner's first is served before the borrower.
func TestTheOwnerIsNextWhateverElseItAsks(t *testing.T) {
	s := mustNew(t, Config{Total: 1, Compartments: []CompartmentConfig{
		{Name: "owner", Guaranteed: 1, Lendable: 1, MaxQueue: 10},
		{Name: "borrower", Max: 1, MaxQueue: 1},
	}})
	owner, borrower := s.Compartment("owner"), s.Compartment("borrower")
	passedOver := 0
	for range 1500 {
		_, lent, err := borrower.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		served := false // in the one slot there is
		call := func(c *Compartment, fn func()) {
			all.Go(func() {
				if _, err := Do(context.Background(), c, func(context.Context) (int, error) { fn(); return 0, nil }); err != nil {
					t.Error(err)
				}
			})
		}
		call(owner, func() { served = true })
		call(borrower, func() {
			if !served {
				passedOver++
			}
		})
		for owner.Snapshot().Queued+borrower.Snapshot().Queued < 2 {
			runtime.Gosched()
		}
		for range 3 {
			call(owner, func() {})
		}
		all.Go(func() { lent.Release(nil) })
		all.Wait()
	}
	if passedOver > 0 {
		t.Errorf("B3: passed over %d times", passedOver)
	}
	rest(t, s, 0)
}

// TestNoWakeUpIsLost sends calls that may all wait as long as they like, at compartments that live from each other's
// slots alone: one that is forgotten would wait for ever.
func TestNoWakeUpIsLost(t *testing.T) {
	s := mustNew(t, Config{Total: 2, Compartments: []CompartmentConfig{
		{Name: "a", Guaranteed: 1, Lendable: 1, Max: 2, MaxQueue: 1000},
		{Name: "b", Guaranteed: 1, Lendable: 1, Max: 2, MaxQueue: 1000},
		{Name: "c", Max: 2, MaxQueue: 1000, Tenants: TenantsConfig{Max: 1}},
	}})
	var all sync.WaitGroup
	for _, c := range compartments(s) {
		for j := range 4 {
			all.Go(func() {
				for range 1500 {
					if _, err := Do(context.Background(), c.Tenant(fmt.Sprint(j)), nothing); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	rest(t, s, 0)
}

// TestAbandonedRace lets functions and their timeouts end at the same time, again and again.
func TestAbandonedRace(t *testing.T) {
	var answered atomic.Int64
	b := &countingBreaker{}
	s, a := single(t, CompartmentConfig{Guaranteed: 4, Timeout: 50 * time.Microsecond, MaxQueue: 100, MaxWait: time.Hour,
		Breaker: b})
	var all sync.WaitGroup
	const calls = 8 * 300
	for range 8 {
		all.Go(func() {
			for range calls / 8 {
				_, err := Do(context.Background(), a, func(ctx context.Context) (int, error) {
					<-ctx.Done()
					return 0, ctx.Err()
				})
				if !errors.Is(err, ErrTimeout) {
					t.Error(err)
				}
				answered.Add(1)
			}
		})
	}
	all.Wait()
	for s.Snapshot().InFlight > 0 {
		runtime.Gosched()
	}
	rest(t, s, 0)
	if c := a.Snapshot(); c.Outcomes["timeout_running"] != calls || b.asked.Load() != calls || b.told.Load() != calls {
		t.Errorf("B4: asked %d, told %d, %+v", b.asked.Load(), b.told.Load(), c)
	}
}

type countingBreaker struct{ asked, told atomic.Int64 }

func (*countingBreaker) IsOpen() bool { return false }

func (b *countingBreaker) Allow() (func(error), error) {
	b.asked.Add(1)
	return func(error) { b.told.Add(1) }, nil
}

func TestDoAllocatesOnce(t *testing.T) {
	_, a := single(t, CompartmentConfig{Guaranteed: 1})
	_, b := single(t, CompartmentConfig{Guaranteed: 1, MaxQueue: 1, Tenants: TenantsConfig{Max: 1}})
	b = b.Tenant("x")
	ctx := context.Background()
	for _, c := range []*Compartment{a, b} {
		if n := testing.AllocsPerRun(1000, func() { _, _ = Do(ctx, c, nothing) }); n > 1 {
			t.Errorf("%v allocations", n)
		}
	}
	if n := testing.AllocsPerRun(1000, func() { b.pool.self.Tenant("x") }); n > 0 {
		t.Errorf("to find a tenant: %v allocations", n)
	}
}
