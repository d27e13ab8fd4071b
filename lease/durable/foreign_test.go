// SPDX-License-Identifier: Apache-2.0

package durable_test

// Records in a ledger that are not its own: those of another ledger, or of its own past.

import (
	"errors"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/model"
	"github.com/stopbank/stopbank/lease/internal/step"
)

// elsewhere is the record of domain A in another ledger, with that floor and a lease whose clock is the next after clock.
func elsewhere(t *testing.T, floor int64, clock uint64) []byte {
	t.Helper()
	store := &durable.MemStore{}
	l := open(t, durable.Config{Store: store})
	noError(t, l.Compact(ctx, floor))
	l.SetClock(clock)
	acquire(t, l, "A", math.MaxInt64)
	b, _ := get(t, store, "A")
	return b
}

// One foreign record: its own domain is refused, and that is all.
func TestForeignRecord(t *testing.T) {
	for what, c := range map[string]struct {
		floor int64
		clock uint64
		says  string
	}{
		"a floor above the ledger's": {1 << 40, 1, "floor 1099511627776 is above the ledger's, 5"},
		"the last token but one":     {5, durable.MaxClock - 2, "is among the last"},
		"a late token":               {5, durable.LateClock, "is among the last"},
	} {
		t.Run(what, func(t *testing.T) {
			store := &durable.MemStore{}
			l := open(t, durable.Config{Store: store})
			noError(t, l.Compact(ctx, 5))
			held := acquire(t, l, "B", 7)
			store.Tamper("A", elsewhere(t, c.floor, c.clock))
			for _, l := range []*durable.Ledger{l, open(t, durable.Config{Store: store})} {
				for _, call := range []model.Call{
					{}, {Op: step.TryAcquire}, {Op: step.Offer}, {Op: step.AcquireNext}, {Op: step.Succeed}, {Op: step.Fail},
					{Op: step.Reclaim}, {Op: step.Release},
				} {
					call.Domain, call.Offset, call.Token = "A", 9, held.Token
					if r := call.Do(ctx, l); !errors.Is(r.Err, durable.ErrCorrupt) ||
						!strings.Contains(r.Err.Error(), `"A"`) || !strings.Contains(r.Err.Error(), c.says) {
						t.Errorf("%v: %v", call, r)
					}
				}
				if v := inspect(t, l, "B"); v.Floor != 5 || v.Lease == nil || *v.Lease != held {
					t.Errorf("B: %+v", v)
				}
				if heir, err := l.Reclaim(ctx, "B", held.Token); err != nil || heir.Token>>22 > held.Token>>22+20 {
					t.Errorf("the token after %d is %d, %v", held.Token, heir.Token, err)
				} else {
					held = heir
				}
				if a, err := l.TryAcquire(ctx, "C", 4); err != nil || !a.BelowFloor {
					t.Errorf("C, below the floor: %+v, %v", a, err)
				}
				if status, err := l.Offer(ctx, "C", 1<<39); err != nil || status != lease.Enqueued {
					t.Errorf("C, above the floor: %v, %v", status, err)
				}
			}
		})
	}
}

// The ledger's own record, put back from before the floor was raised: what was trimmed since is refused until the floor is as
// high again.
func TestFloorOfAnEarlierRoot(t *testing.T) {
	store := &durable.MemStore{}
	l := open(t, durable.Config{Store: store})
	held := acquire(t, l, "A", 7)
	before, _ := get(t, store, "")
	noError(t, l.Compact(ctx, 5))
	succeed(t, l, held)
	store.Tamper("", before)
	l = open(t, durable.Config{Store: store})
	if _, err := l.TryAcquire(ctx, "A", 8); !errors.Is(err, durable.ErrCorrupt) {
		t.Errorf("under a floor that is gone: %v", err)
	}
	noError(t, l.Compact(ctx, 5))
	acquire(t, l, "A", 8)
}

// Whatever floors and clocks come from elsewhere, and whatever is called beside them, other domains live as if nothing had come.
func TestPropertyForeignRecordsStayApart(t *testing.T) {
	var refused, taken int
	rapid.Check(t, func(t *rapid.T) {
		cfg := lease.Config{MaxRetries: 1}
		store, other := &durable.MemStore{}, &durable.MemStore{}
		fresh := func(s durable.Store) *durable.Ledger {
			return must(durable.Open(durable.Config{Store: s, MaxRetries: cfg.MaxRetries, MaxCached: 1}))(t)
		}
		ledgers := []*durable.Ledger{fresh(store), fresh(store), fresh(store)}
		models := map[string]*model.Domain{"A": model.New(), "B": model.New()}
		for _, l := range ledgers { // each draws its number
			c := model.Call{Op: step.Offer, Domain: "A", Offset: 100}
			noError(t, models["A"].Accept(cfg, c, c.Do(ctx, l)))
		}
		foreign := fresh(other)
		call := func(domains ...string) model.Call {
			return model.Call{
				Op:     step.Kind(rapid.IntRange(0, int(step.Release)).Draw(t, "op")),
				Domain: rapid.SampledFrom(domains).Draw(t, "domain"),
				Offset: rapid.Int64Range(0, 40).Draw(t, "offset"),
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"there": func(*rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "floor") == 0 {
					_ = foreign.Compact(ctx, rapid.Int64Range(0, 40).Draw(t, "to")) // or it goes down
				}
				if rapid.IntRange(0, 5).Draw(t, "clock") == 0 {
					foreign.SetClock(durable.LateClock + rapid.Uint64Range(0, 1<<31).Draw(t, "to"))
				}
				c := call("evil")
				if v, err := foreign.Inspect(ctx, "evil"); err == nil && v.Lease != nil {
					c.Token = v.Lease.Token
				}
				_ = c.Do(ctx, foreign)
				if b, _, _ := other.Load(ctx, "evil"); b != nil && rapid.Bool().Draw(t, "copy") {
					store.Tamper("evil", b)
				}
			},
			"compact": func(*rapid.T) {
				c := model.Call{Op: step.Compact, Offset: rapid.Int64Range(0, 20).Draw(t, "floor")}
				reply := c.Do(ctx, ledgers[0])
				for domain, m := range models {
					noError(t, m.Accept(cfg, c, reply))
					for _, l := range ledgers {
						must(l.Inspect(ctx, domain))(t)
					}
				}
			},
			"here": func(*rapid.T) {
				c := call("A", "B", "evil")
				l := ledgers[rapid.IntRange(0, 2).Draw(t, "ledger")]
				if c.Domain == "evil" {
					if r := c.Do(ctx, l); errors.Is(r.Err, durable.ErrCorrupt) {
						refused++
					} else {
						taken++ // it does not show
					}
					return
				}
				m := models[c.Domain]
				c.Token = m.Highest
				noError(t, m.Accept(cfg, c, c.Do(ctx, l)))
				if m.Highest>>22 > durable.LateClock {
					t.Fatalf("%v: token %d", c, m.Highest)
				}
			},
		})
	})
	t.Logf("%d calls refused beside foreign records, %d taken", refused, taken)
	if !testing.Short() && (refused == 0 || taken == 0) { // a short run is of twenty worlds, which may all be alike
		t.Error("a kind of record did not come")
	}
}

// A floor that is the ledger's own is learned from a record, though all who wrote it are known.
func TestFloorIsLearned(t *testing.T) {
	store := &durable.MemStore{}
	l, other := open(t, durable.Config{Store: store}), open(t, durable.Config{Store: store})
	held := acquire(t, other, "A", 7)
	acquire(t, l, "B", 7) // and so knows of both
	noError(t, other.Compact(ctx, 5))
	succeed(t, other, held)
	acquire(t, l, "A", 8)
	if a, err := l.TryAcquire(ctx, "B", 4); err != nil || !a.BelowFloor {
		t.Errorf("below the floor: %+v, %v", a, err)
	}
}
