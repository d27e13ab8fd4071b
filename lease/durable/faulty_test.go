// SPDX-License-Identifier: Apache-2.0

// A store that fails on purpose: before a swap, after it, without saying which, or not at all until it is let go.

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
)

var errInjected = errors.New("injected")

// faulty passes calls on to a MemStore, some of them with a fault. Its counts are for the tests.
type faulty struct {
	durable.MemStore
	mu    sync.Mutex // guards what follows
	swap  func(name string) fault
	load  func(name string) fault
	loads int
	swaps int
	hits  map[fault]int
	late  []func() // swaps that were sent and come in later
}

// fault is what happens to one call.
type fault int

const (
	none       fault = iota
	refused          // Swap: ErrNotApplied, truthfully
	lostBefore       // Swap: not applied, and nobody says so; Load: an error
	lostAfter        // Swap: applied, and nobody says so
	delayed          // Swap: nobody says anything, and it comes in later
	blocked          // until ctx is done
)

func (f *faulty) draw(hook func(string) fault, name string, count *int) fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	*count++
	if hook == nil {
		return none
	}
	hit := hook(name)
	if hit != none {
		if f.hits == nil {
			f.hits = map[fault]int{}
		}
		f.hits[hit]++
	}
	return hit
}

func (f *faulty) Load(ctx context.Context, name string) ([]byte, uint64, error) {
	switch f.draw(f.load, name, &f.loads) {
	case lostBefore:
		return nil, 0, errInjected
	case blocked:
		<-ctx.Done()
		return nil, 0, ctx.Err()
	}
	return f.MemStore.Load(ctx, name)
}

func (f *faulty) Swap(ctx context.Context, name string, old uint64, state []byte, index durable.Index) (uint64, error) {
	hit := f.draw(f.swap, name, &f.swaps)
	switch hit {
	case refused:
		return 0, fmt.Errorf("%w: %w", durable.ErrNotApplied, errInjected)
	case lostBefore:
		return 0, errInjected
	case delayed:
		f.mu.Lock()
		defer f.mu.Unlock()
		f.late = append(f.late, func() { _, _ = f.MemStore.Swap(context.Background(), name, old, state, index) })
		return 0, errInjected
	case blocked:
		<-ctx.Done()
		return 0, ctx.Err()
	}
	version, err := f.MemStore.Swap(ctx, name, old, state, index)
	if hit == lostAfter {
		return 0, errInjected
	}
	return version, err
}

// arrive lets the delayed swaps in.
func (f *faulty) arrive() {
	f.mu.Lock()
	late := f.late
	f.late = nil
	f.mu.Unlock()
	for _, swap := range late {
		swap()
	}
}

// cost is how many loads and swaps a call takes.
func (f *faulty) cost(call func()) (loads, swaps int) {
	f.mu.Lock()
	loads, swaps = f.loads, f.swaps
	f.mu.Unlock()
	call()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.loads - loads, f.swaps - swaps
}

// once makes a hook that hits the next call on name with each of faults in turn, and then no more.
func once(name string, faults ...fault) func(string) fault {
	return func(got string) fault {
		if got != name || len(faults) == 0 {
			return none
		}
		hit := faults[0]
		faults = faults[1:]
		return hit
	}
}

// often makes a hook that hits a part of the calls with one of faults.
func often(rnd *rand.Rand, part float64, faults ...fault) func(string) fault {
	return func(string) fault {
		if rnd.Float64() >= part {
			return none
		}
		return faults[rnd.IntN(len(faults))]
	}
}

var _ durable.Store = (*faulty)(nil)

func (f *faulty) List(ctx context.Context, index durable.Index) iter.Seq2[string, error] {
	return f.MemStore.List(ctx, index)
}

var ctx = context.Background()

func open(t testing.TB, cfg durable.Config) *durable.Ledger {
	t.Helper()
	return must(durable.Open(cfg))(t)
}

func acquire(t testing.TB, l lease.Ledger, domain string, offset int64) lease.Lease {
	t.Helper()
	a, err := l.TryAcquire(ctx, domain, offset)
	if err != nil || a.Status != lease.Acquired {
		t.Fatalf("TryAcquire(%s, %d) = %+v, %v", domain, offset, a, err)
	}
	return a.Lease
}

func succeed(t testing.TB, l lease.Ledger, held lease.Lease) {
	t.Helper()
	must(l.Succeed(ctx, held.Domain, held.Token))(t)
}

func inspect(t fataler, l lease.Ledger, domain string) lease.View {
	t.Helper()
	return must(l.Inspect(ctx, domain))(t)
}
