// SPDX-License-Identifier: Apache-2.0

// The counters (B5), looked at while everything moves.

package bulkhead

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// TestPropertyCountersAtAnyInstant looks at a set while calls are admitted, wait, time out, panic, are rejected by a breaker and
// answered by fallbacks, and while shares change: no counter ever falls, and what a look says adds up.
func TestPropertyCountersAtAnyInstant(t *testing.T) {
	b := &flipping{}
	s := mustNew(t, Config{Total: 6, Compartments: []CompartmentConfig{
		{Name: "gold", Guaranteed: 2, Lendable: 1, Max: 4, MaxQueue: 3, MaxWait: 100 * time.Microsecond, Criticality: decision.Critical,
			Breaker: b},
		{Name: "silver", Guaranteed: 1, Max: 6, MaxQueue: 2, Timeout: 50 * time.Microsecond, MaxFallback: 1},
		{Name: "many", Max: 6, MaxQueue: 2, Tenants: TenantsConfig{Max: 2, Keys: 4}},
	}})
	stop := make(chan struct{})
	var all, watch sync.WaitGroup
	watch.Go(func() {
		last, looks := map[string]uint64{}, 0
		for ; ; looks++ {
			snap := s.Snapshot()
			for _, c := range snap.Compartments {
				for name, n := range counters(c) {
					if n < last[name] {
						t.Errorf("B5: %s fell from %d to %d", name, last[name], n)
					}
					last[name] = n
				}
				begun := c.Admitted + total(c.Rejected) + total(c.Left) + uint64(c.Queued)
				if begun > c.Submitted || c.Submitted-begun > uint64(c.InFlight) || c.Finished > c.Admitted ||
					total(c.Outcomes) != c.Finished+uint64(c.Abandoned) {
					t.Errorf("B5: %+v does not add up", c)
				}
			}
			select {
			case <-stop:
				t.Logf("%d looks", looks)
				return
			default:
				runtime.Gosched()
			}
		}
	})
	for i := range 9 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(21, uint64(i)))
			for range 1500 {
				c := compartments(s)[i%3].Tenant(fmt.Sprint(rng.IntN(6)))
				ctx, cancel := context.WithCancel(context.Background())
				if rng.IntN(5) == 0 {
					go cancel()
				}
				kind := rng.IntN(8)
				func() {
					defer func() { _ = recover() }() // the function's own panic
					_, _ = DoOr(ctx, c, func(ctx context.Context) (int, error) {
						switch kind {
						case 0:
							panic("mine")
						case 1:
							return 0, errors.New("failed")
						case 2:
							time.Sleep(60 * time.Microsecond) // longer than the Timeout
						case 3:
							return Do(ctx, c, nothing) // re-entry
						}
						return 1, nil
					}, func(context.Context, error) (int, error) { return 2, nil })
				}()
				cancel()
			}
		})
	}
	all.Go(func() {
		for seq := uint64(1); seq < 200; seq++ {
			d := bound(seq, 1+int(seq%8))
			d.Yields, d.ShedProbability = int(seq%3), float64(seq%4)/4
			s.Apply(d)
			time.Sleep(20 * time.Microsecond) // so that some load runs under each decision
		}
		s.Apply(bound(1000, 6))
	})
	all.Wait()
	for s.Snapshot().InFlight > 0 { // what was abandoned
		runtime.Gosched()
	}
	close(stop)
	watch.Wait()
	rest(t, s, 0)
}

// counters are all numbers of a snapshot that may only grow.
func counters(c CompartmentSnapshot) map[string]uint64 {
	all := map[string]uint64{
		"submitted": c.Submitted, "admitted": c.Admitted, "finished": c.Finished, "abandoned": c.AbandonedTotal,
		"late panics": c.LatePanics,
		"degraded":    c.Degraded, "fallbacks failed": c.FallbacksFailed, "fallbacks rejected": c.FallbacksRejected,
	}
	for kind, m := range map[string]map[string]uint64{"outcome ": c.Outcomes, "rejected ": c.Rejected, "left ": c.Left} {
		for k, n := range m {
			all[kind+k] = n
		}
	}
	named := make(map[string]uint64, len(all))
	for k, n := range all {
		named[c.Name+": "+k] = n
	}
	return named
}

// flipping is a breaker that takes its time and rejects every third call.
type flipping struct {
	mu sync.Mutex
	n  int
}

func (*flipping) IsOpen() bool { return false }

func (b *flipping) Allow() (func(error), error) {
	runtime.Gosched()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n++; b.n%3 == 0 {
		return nil, errors.New("open")
	}
	return func(error) {}, nil
}
