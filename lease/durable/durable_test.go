// SPDX-License-Identifier: Apache-2.0

// What a call costs, what is confirmed, and what of other Ledgers on the same store is seen.

package durable_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// What changes nothing by the state in memory may be long out of date.
func TestAnswersThatChangeNothingAreConfirmed(t *testing.T) {
	store := &durable.MemStore{}
	mine, other := open(t, durable.Config{Store: store}), open(t, durable.Config{Store: store})
	held := acquire(t, mine, "A", 1)
	succeed(t, other, held)
	if a, err := mine.TryAcquire(ctx, "A", 1); err != nil || a.Status != lease.AlreadyProcessed {
		t.Errorf("TryAcquire = %+v, %v", a, err)
	}
	acquire(t, other, "A", 2)
	if a, err := mine.AcquireNext(ctx, "A"); err != nil || a.Status != lease.Busy {
		t.Errorf("AcquireNext = %+v, %v", a, err)
	}
	var mismatch *lease.TokenMismatchError
	if _, err := mine.Succeed(ctx, "A", held.Token); !errors.As(err, &mismatch) || mismatch.Offset != 2 {
		t.Errorf("Succeed = %v", err)
	}
	// By memory: no lease. By the store: leased.
	if v := inspect(t, other, "A"); v.Lease == nil {
		t.Fatal(v)
	}
	succeed(t, other, *inspect(t, other, "A").Lease)
	inspect(t, mine, "A")
	heir := acquire(t, other, "A", 3)
	if _, err := mine.Succeed(ctx, "A", heir.Token); err != nil {
		t.Errorf("Succeed of a lease that is new to this Ledger: %v", err)
	}
}

// A conflict is replayed on what the other writer left.
func TestConflictReplays(t *testing.T) {
	store := &durable.MemStore{}
	mine, other := open(t, durable.Config{Store: store}), open(t, durable.Config{Store: store})
	held := acquire(t, mine, "A", 1)
	for offset := int64(2); offset < 40; offset += 2 {
		for i, l := range []*durable.Ledger{mine, other} {
			if s, err := l.Offer(ctx, "A", offset+int64(i)); err != nil || s != lease.Enqueued {
				t.Fatal(s, err)
			}
		}
	}
	v := inspect(t, mine, "A")
	if len(v.Backlog) != 38 || v.Lease == nil || *v.Lease != held {
		t.Fatalf("%+v", v)
	}
	for i, offset := range v.Backlog {
		if offset != int64(i)+2 {
			t.Fatalf("%v", v.Backlog)
		}
	}
}

// Tokens rise in a domain and are unique in the ledger, whoever makes them and however often everybody is restarted; and they
// fit a signed column.
func TestTokensOverRestartsAndWriters(t *testing.T) {
	store := &durable.MemStore{}
	seen, last := map[lease.Token]bool{}, map[string]lease.Token{}
	note := func(l lease.Lease) {
		t.Helper()
		if l.Token == 0 || seen[l.Token] || l.Token <= last[l.Domain] || int64(l.Token) < 0 {
			t.Fatalf("L9: %+v after %d", l, last[l.Domain])
		}
		seen[l.Token], last[l.Domain] = true, l.Token
	}
	offset := int64(0)
	for round := range 20 {
		ledgers := []*durable.Ledger{open(t, durable.Config{Store: store}), open(t, durable.Config{Store: store}),
			open(t, durable.Config{Store: store})}
		for i := range 60 {
			l, domain := ledgers[i*i%3], string(rune('A'+i%4))
			offset++
			held := acquire(t, l, domain, offset)
			note(held)
			heir := must(ledgers[(i+1)%3].Reclaim(ctx, domain, held.Token))(t)
			note(heir)
			succeed(t, ledgers[(i+2)%3], heir)
		}
		if round%5 == 4 { // a domain forgotten but for its greatest token
			noError(t, ledgers[0].Compact(ctx, offset+1))
		}
	}
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

func TestRestart(t *testing.T) {
	store := &durable.MemStore{}
	before := open(t, durable.Config{Store: store, MaxRetries: 3})
	held := acquire(t, before, "held", 1)
	must(before.Fail(ctx, "held", held.Token))(t)
	held.RetryCount = 1
	for _, offset := range []int64{7, 5} {
		must(before.Offer(ctx, "ready", offset))(t)
	}
	succeed(t, before, acquire(t, before, "done", 4))
	l := open(t, durable.Config{Store: store, MaxRetries: 3})
	var heads []lease.Head
	for h, err := range l.Ready(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		heads = append(heads, h)
		if a, err := l.AcquireNext(ctx, h.Domain); err != nil || a.Status != lease.Acquired || a.Lease.Offset != 7 {
			t.Errorf("%+v, %v", a, err)
		}
	}
	if diff := cmp.Diff([]lease.Head{{Domain: "ready", Offset: 7}}, heads); diff != "" {
		t.Errorf("ready (-want +got):\n%s", diff)
	}
	found := map[string]lease.Lease{}
	for h, err := range l.Held(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		found[h.Domain] = h
	}
	if len(found) != 2 || found["held"] != held {
		t.Errorf("held: %+v, want %+v", found, held)
	}
	if a, err := l.TryAcquire(ctx, "done", 4); err != nil || a.Status != lease.AlreadyProcessed {
		t.Errorf("%+v, %v", a, err)
	}
	var none *lease.LeaseNotFoundError
	succeed(t, l, held)
	if _, err := before.Succeed(ctx, "held", held.Token); !errors.As(err, &none) || none.Status != lease.AlreadyProcessed {
		t.Errorf("the old process: %v", err)
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
