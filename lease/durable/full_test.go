// SPDX-License-Identifier: Apache-2.0

package durable_test

// Records filled up to what a store takes: what is refused, and that the rest can always be worked off.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
)

// small takes records of so many bytes.
type small struct {
	durable.MemStore
	limit    int
	greatest int // that it took
}

func (s *small) Limit(string) int { return s.limit }

func (s *small) Swap(ctx context.Context, name string, old uint64, state []byte, index durable.Index) (uint64, error) {
	if len(state) > s.limit {
		return 0, fmt.Errorf("%w: %d bytes", durable.ErrNotApplied, len(state))
	}
	s.greatest = max(s.greatest, len(state))
	return s.MemStore.Swap(ctx, name, old, state, index)
}

// Whatever the offsets and whatever becomes of them, what was taken in is worked off without a refusal, also where each
// second offset is given up, which needs the most room.
func TestPropertyWhatWaitsCanBeWorkedOff(t *testing.T) {
	most := 0.0
	rapid.Check(t, func(t *rapid.T) {
		store := &small{limit: rapid.IntRange(1200, 2500).Draw(t, "limit")}
		ledgers := make([]*durable.Ledger, rapid.SampledFrom([]int{1, 2, 20}).Draw(t, "ledgers"))
		for i := range ledgers {
			ledgers[i] = must(durable.Open(durable.Config{Store: store}))(t)
		}
		calls := 0
		next := func() *durable.Ledger { calls++; return ledgers[calls%len(ledgers)] }
		// Offsets that were done before, with others to come between them.
		for i := range rapid.Int64Range(0, 20).Draw(t, "done before") {
			if a, err := next().TryAcquire(ctx, "A", i<<50+1<<49); err != nil {
				t.Fatal(err)
			} else if _, err := next().Succeed(ctx, "A", a.Lease.Token); err != nil {
				t.Fatal(err)
			}
		}
		held := lease.Lease{}
		if rapid.Bool().Draw(t, "busy") {
			held = must(next().TryAcquire(ctx, "A", -1))(t).Lease
		}
		shift := rapid.SampledFrom([]int{0, 6, 13, 40, 55}).Draw(t, "stride")
		pairs := rapid.Bool().Draw(t, "pairs")
		offered := 0
		for i := int64(0); ; i++ {
			offset := i<<shift + i
			if pairs {
				offset = i/2<<shift + i
			}
			_, err := next().Offer(ctx, "A", offset)
			if errors.Is(err, lease.ErrBacklogFull) {
				var size, limit int
				_, text, _ := strings.Cut(err.Error(), fmt.Sprintf("domain %q: no room for offset %d: ", "A", offset))
				if _, scan := fmt.Sscanf(text, "a record of %d bytes is more than half of %d", &size, &limit); scan != nil ||
					limit != store.limit || 2*size+600 < limit {
					t.Fatal(err)
				}
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			offered++
		}
		mode := rapid.IntRange(0, 2).Draw(t, "ends")
		reclaims := rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "reclaims")
		for n := 0; ; n++ {
			if held.Token == 0 {
				a, err := next().AcquireNext(ctx, "A")
				if err != nil {
					t.Fatalf("after %d of %d: %v", n, offered, err)
				}
				if a.Status == lease.NothingToDo {
					break
				}
				held = a.Lease
			}
			for range reclaims {
				noError(t, next().Release(ctx, "A", held.Token))
				held = must(next().Reclaim(ctx, "A", held.Token))(t)
			}
			var err error
			if mode == 0 || mode == 1 && n%2 == 0 {
				_, err = next().Succeed(ctx, "A", held.Token)
			} else {
				_, err = next().Fail(ctx, "A", held.Token)
			}
			if err != nil {
				t.Fatalf("after %d of %d: %v", n, offered, err)
			}
			held = lease.Lease{}
		}
		most = max(most, float64(store.greatest)/float64(store.limit))
	})
	t.Logf("the greatest record took %.2f of its limit", most)
}

// A record that is full takes offsets again when the floor is raised, though by another Ledger, or when what waits was worked
// off. What it knows it knows, and other domains are not concerned.
func TestAFullRecordHasRoomAgain(t *testing.T) {
	store := &small{limit: 2000}
	l, other := open(t, durable.Config{Store: store}), open(t, durable.Config{Store: store})
	fill := func(call func(int64) error, from int64) int64 {
		t.Helper()
		for offset := from; ; offset++ {
			switch err := call(offset << 20); {
			case errors.Is(err, lease.ErrBacklogFull):
				return offset
			case err != nil:
				t.Fatal(err)
			}
		}
	}
	done := func(offset int64) error {
		a, err := l.TryAcquire(ctx, "A", offset)
		if err == nil {
			_, err = l.Succeed(ctx, "A", a.Lease.Token)
		}
		return err
	}
	offer := func(offset int64) error { _, err := l.Offer(ctx, "A", offset); return err }

	at := fill(done, 0)
	if status, err := l.Offer(ctx, "A", 0); err != nil || status != lease.AlreadyProcessed {
		t.Errorf("what is done: %v, %v", status, err)
	}
	acquire(t, l, "B", 1)
	noError(t, other.Compact(ctx, at<<20))
	end := fill(offer, at)
	if end == at {
		t.Fatal("no room after the floor was raised")
	}
	acquire(t, other, "A", at<<20)
	acquire(t, other, "C", 1<<40)
	if status, err := l.Offer(ctx, "A", (end-1)<<20); err != nil || status != lease.Enqueued {
		t.Errorf("what waits: %v, %v", status, err)
	}
}
