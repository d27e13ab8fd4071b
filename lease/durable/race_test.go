// SPDX-License-Identifier: Apache-2.0

// Many at once: turns, blocked stores, several Ledgers on one domain, all of it with faults.

package durable_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
)

// crowded reports calls of one Ledger that are in the store at once with the same name.
type crowded struct {
	durable.MemStore
	mu     sync.Mutex
	inside map[string]bool
	met    int
}

func (s *crowded) Swap(ctx context.Context, name string, old uint64, state []byte, index durable.Index) (uint64, error) {
	s.mu.Lock()
	if s.inside[name] {
		s.met++
	}
	s.inside[name] = true
	s.mu.Unlock()
	version, err := s.MemStore.Swap(ctx, name, old, state, index)
	s.mu.Lock()
	s.inside[name] = false
	s.mu.Unlock()
	return version, err
}

// Calls of one Ledger on one domain take turns, however small the cache: nobody waits for a turn that others no longer know.
func TestTurnsOutliveEviction(t *testing.T) {
	store := &crowded{inside: map[string]bool{}}
	l := open(t, durable.Config{Store: store, MaxCached: 1})
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for i := range 300 {
				if _, err := l.Offer(ctx, string(rune('A'+(i+g)%3)), int64(g*1000+i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if store.met != 0 {
		t.Errorf("L6: %d swaps met another of the same domain", store.met)
	}
	if all, idle := l.Cached(); all != 1 || idle != 1 {
		t.Errorf("L6: %d domains in memory, %d idle", all, idle)
	}
	total := 0
	for _, domain := range []string{"A", "B", "C"} {
		total += len(inspect(t, l, domain).Backlog)
	}
	if total != 8*300 {
		t.Errorf("L6: %d wait", total)
	}
}

// A store that does not answer about one domain holds up nobody else, and nobody for longer than his ctx.
func TestBlockedStore(t *testing.T) {
	store := &faulty{}
	l := open(t, durable.Config{Store: store})
	held := acquire(t, l, "A", 1)
	must(l.Offer(ctx, "ready", 1))(t)
	stuck, free := context.WithCancel(ctx)
	inside := make(chan bool)
	store.mu.Lock()
	store.swap = func(name string) fault {
		if name != "A" {
			return none
		}
		inside <- true
		return blocked
	}
	store.mu.Unlock()
	done := make(chan error)
	go func() { _, err := l.Succeed(stuck, "A", held.Token); done <- err }()
	<-inside
	succeed(t, l, acquire(t, l, "B", 1))
	if err := l.Compact(ctx, 1); err != nil {
		t.Error(err)
	}
	for h, err := range l.Held(ctx) {
		if err != nil || h != held {
			t.Errorf("%+v, %v", h, err)
		}
	}
	for h, err := range l.Ready(ctx) {
		a, err2 := l.AcquireNext(ctx, h.Domain)
		if err != nil || err2 != nil || a.Status != lease.Acquired {
			t.Errorf("%+v, %v, %+v, %v", h, err, a, err2)
		}
	}
	waiting, leave := context.WithCancel(ctx)
	gone := make(chan error)
	go func() { _, err := l.Offer(waiting, "A", 5); gone <- err }()
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("whoever left: %v", err)
	}
	free()
	if err := <-done; !errors.Is(err, durable.ErrAmbiguous) {
		t.Errorf("whoever was blocked: %v", err)
	}
	store.mu.Lock()
	store.swap = nil
	store.mu.Unlock()
	succeed(t, l, held)
}

// A body of List that calls the ledger, while the store is blocked in nothing: see TestBlockedStore; and a Store that panics
// lets the next caller in.
func TestPanicPassesTheTurn(t *testing.T) {
	store := &faulty{}
	l := open(t, durable.Config{Store: store})
	held := acquire(t, l, "A", 1)
	store.swap = func(string) fault { panic("store") }
	func() {
		defer func() {
			store.mu = sync.Mutex{} // draw did not get to unlock it
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = l.Succeed(ctx, "A", held.Token)
	}()
	store.swap = nil
	if a, err := l.TryAcquire(ctx, "A", 1); err != nil || a.Status != lease.AlreadyAcquired {
		t.Errorf("%+v, %v", a, err)
	}
	succeed(t, l, held)
}

// Another writer is faster every time.
func TestContention(t *testing.T) {
	store := &faulty{}
	l, other := open(t, durable.Config{Store: store}), open(t, durable.Config{Store: store})
	must(other.Offer(ctx, "A", 0))(t)
	must(l.Offer(ctx, "B", 0))(t)
	meddled, busy := int64(0), false
	store.swap = func(string) fault {
		if busy {
			return none
		}
		busy = true
		meddled++
		store.mu.Unlock()
		defer store.mu.Lock()
		if _, err := other.Offer(ctx, "A", meddled); err != nil {
			t.Error(err)
		}
		busy = false
		return none
	}
	if _, err := l.Offer(ctx, "A", -1); !errors.Is(err, durable.ErrStore) || !strings.Contains(err.Error(), `"A": 128 tries`) {
		t.Error(err)
	}
	store.swap = nil
	if v := inspect(t, l, "A"); slices.Contains(v.Backlog, -1) || int64(len(v.Backlog)) != meddled+1 {
		t.Errorf("%d wait", len(v.Backlog))
	}
}
