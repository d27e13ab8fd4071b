// SPDX-License-Identifier: Apache-2.0

// What a call costs, what is confirmed, and what of other Ledgers on the same store is seen.

package durable_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/step"
)

// A change in a domain that was used last is one swap and no load; what changes nothing is one load and no swap.
func TestCost(t *testing.T) {
	store := &faulty{}
	l := open(t, durable.Config{Store: store, MaxRetries: 1})
	var held lease.Lease
	costs := func(what string, loads, swaps int, call func() error) {
		t.Helper()
		var err error
		if gotLoads, gotSwaps := store.cost(func() { err = call() }); err != nil || gotLoads != loads || gotSwaps != swaps {
			t.Errorf("%s: %d loads, %d swaps, %v; want %d, %d", what, gotLoads, gotSwaps, err, loads, swaps)
		}
	}
	try := func(domain string, offset int64) func() error {
		return func() error {
			a, err := l.TryAcquire(ctx, domain, offset)
			if a.Status == lease.Acquired {
				held = a.Lease
			}
			return err
		}
	}
	// The root for a number, the domain, the root for the floor.
	costs("the first call", 3, 2, try("A", 1))
	costs("Fail", 0, 1, func() error { _, err := l.Fail(ctx, "A", held.Token); return err })
	costs("Reclaim", 0, 1, func() (err error) { held, err = l.Reclaim(ctx, "A", held.Token); return err })
	costs("Release", 0, 1, func() error { return l.Release(ctx, "A", held.Token) })
	costs("Release again", 1, 0, func() error { return l.Release(ctx, "A", held.Token) })
	costs("Reclaim of what was released", 0, 1, func() (err error) { held, err = l.Reclaim(ctx, "A", held.Token); return err })
	costs("Offer", 0, 1, func() error { _, err := l.Offer(ctx, "A", 2); return err })
	costs("TryAcquire, busy", 0, 1, try("A", 3))
	costs("Succeed", 0, 1, func() error { _, err := l.Succeed(ctx, "A", held.Token); return err })
	costs("AcquireNext", 0, 1, func() error { _, err := l.AcquireNext(ctx, "A"); return err })
	costs("AcquireNext, busy", 1, 0, func() error { _, err := l.AcquireNext(ctx, "A"); return err })
	costs("Offer again", 1, 0, func() error { _, err := l.Offer(ctx, "A", 3); return err })
	costs("TryAcquire of what is done", 1, 0, try("A", 1))
	costs("a domain that is new", 2, 1, try("B", 1))
	costs("Inspect", 2, 0, func() error { _, err := l.Inspect(ctx, "A"); return err })
	costs("Compact", 1, 1, func() error { return l.Compact(ctx, 1) })
	costs("Compact again", 1, 0, func() error { return l.Compact(ctx, 1) })
	costs("a refusal", 1, 0, func() error {
		if _, err := l.Succeed(ctx, "A", 1); !errors.Is(err, lease.ErrTokenMismatch) {
			return fmt.Errorf("not refused: %w", err)
		}
		return nil
	})
	// Another Ledger on the same store: once, its number costs a Load and a Swap, and a Load to know who wrote before.
	l = open(t, durable.Config{Store: store})
	costs("the first call of another", 3, 2, func() error { _, err := l.Offer(ctx, "A", 9); return err })
	costs("its second", 0, 1, func() error { _, err := l.Offer(ctx, "A", 10); return err })
}

// What is done stays done when another Ledger raises the floor and trims: whoever reads what was trimmed knows the floor.
func TestFloorOfAnother(t *testing.T) {
	store := &durable.MemStore{}
	mine, other := open(t, durable.Config{Store: store}), open(t, durable.Config{Store: store})
	succeed(t, mine, acquire(t, mine, "A", 1))
	succeed(t, mine, acquire(t, mine, "A", 2))
	noError(t, other.Compact(ctx, 10))
	below := func(domain string, offset int64) {
		t.Helper()
		if a, err := mine.TryAcquire(ctx, domain, offset); err != nil || a.Status != lease.AlreadyProcessed || !a.BelowFloor {
			t.Errorf("L4: TryAcquire(%s, %d) = %+v, %v", domain, offset, a, err)
		}
	}
	if a, err := mine.TryAcquire(ctx, "A", 1); err != nil || a.Status != lease.AlreadyProcessed {
		t.Errorf("L4: %+v, %v", a, err)
	}
	acquire(t, other, "A", 11) // trims
	below("A", 1)
	below("never seen", 9)
	// A third, which has only the cached state of A, learns from the state.
	if v := inspect(t, open(t, durable.Config{Store: store}), "A"); v.Floor != 10 || v.Processed != 0 {
		t.Errorf("L4: %+v", v)
	}
	var floor *step.FloorError
	if err := mine.Compact(ctx, 9); !errors.As(err, &floor) || *floor != (step.FloorError{Floor: 10, Got: 9}) {
		t.Errorf("L4: Compact = %v", err)
	}
}

// A floor that could not be written trims nothing.
func TestFloorIsWrittenFirst(t *testing.T) {
	store := &faulty{}
	l := open(t, durable.Config{Store: store})
	succeed(t, l, acquire(t, l, "A", 1))
	store.swap = once("", refused)
	if err := l.Compact(ctx, 10); !errors.Is(err, durable.ErrStore) || !errors.Is(err, errInjected) {
		t.Fatal(err)
	}
	acquire(t, l, "A", 5)
	if v := inspect(t, l, "A"); v.Processed != 1 || v.Floor == 10 {
		t.Errorf("L4: %+v", v)
	}
	// Written, and the reply lost: it counts, once.
	store.swap = once("", lostAfter)
	noError(t, l.Compact(ctx, 10))
	if v := inspect(t, l, "A"); v.Processed != 0 || v.Floor != 10 || v.Lease == nil {
		t.Errorf("L4: %+v", v)
	}
	// Written by a call whose reply is lost, and raised further by another before it looks again.
	other := open(t, durable.Config{Store: store})
	store.swap = func(name string) fault {
		store.swap = nil
		store.mu.Unlock()
		defer store.mu.Lock()
		if err := other.Compact(ctx, 30); err != nil {
			t.Error(err)
		}
		return lostBefore
	}
	noError(t, l.Compact(ctx, 20))
	if v := inspect(t, l, "A"); v.Floor != 30 {
		t.Errorf("L4: %+v", v)
	}
	for _, hits := range []fault{lostBefore, lostAfter} {
		store.swap = func(string) fault { return hits }
		err := l.Compact(ctx, 40)
		if hits == lostBefore && (!errors.Is(err, durable.ErrAmbiguous) || errors.Is(err, errInjected)) ||
			hits == lostAfter && err != nil {
			t.Errorf("L4: %d: Compact = %v", hits, err)
		}
	}
}

// must is for what cannot fail here: x := must(f())(t).
func must[T any](v T, err error) func(fataler) T {
	return func(t fataler) T {
		t.Helper()
		noError(t, err)
		return v
	}
}

func noError(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type fataler interface {
	Helper()
	Fatal(args ...any)
}
