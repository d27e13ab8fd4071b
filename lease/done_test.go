// SPDX-License-Identifier: Apache-2.0

// Many domains: done offsets stay done (L4), and their memory is given back (L11).

package lease_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/model"
	machine "github.com/stopbank/stopbank/lease/internal/step"
)

// Over thousands of domains: a Compact that drops most of them, and so moves the others to new places, keeps every
// lease, every backlog and every offset above the floor.
func TestPropertyManyDomains(t *testing.T) {
	const domains = 8000
	rnd := rand.New(rand.NewPCG(1, 1))
	names := make([]string, domains)
	for i := range names {
		names[i] = fmt.Sprint("domain ", rnd.Uint64()>>rnd.IntN(60), i)
	}
	h := newHistory(t, lease.Config{}, names)
	compact := func(floor int64) {
		h.do(t, model.Call{Op: machine.Compact, Offset: floor})
		noError(t, h.ledger.Audit())
	}
	end := func(name string, op machine.Kind) {
		if held := h.callers[name].held; held.Token != 0 {
			h.do(t, model.Call{Op: op, Domain: name, Token: held.Token})
		}
	}
	for offset := range int64(20_000) {
		c := model.Call{Op: machine.TryAcquire, Domain: names[rnd.IntN(domains)], Offset: offset - rnd.Int64N(50)}
		if v := inspect(t, h.ledger, c.Domain); len(v.Backlog) > 0 && v.Lease == nil {
			c.Op = machine.AcquireNext
		} else if rnd.IntN(100) == 0 {
			c.Op = machine.Offer
		}
		h.do(t, c)
		if rnd.IntN(100) > 0 {
			end(c.Domain, []machine.Kind{machine.Succeed, machine.Fail}[rnd.IntN(8)/7])
		}
		if offset%5000 == 4999 {
			compact(offset - 8000)
		}
	}
	full := h.ledger.Domains()
	compact(25_000)
	if left := h.ledger.Domains(); left == 0 || left > full/4 {
		t.Fatalf("L4: %d of %d domains left: this run shows nothing", left, full)
	}
	if err := h.models.Look(ctx, h.ledger); err != nil {
		t.Fatalf("L4: %v", err)
	}
	for _, name := range names { // and life goes on
		end(name, machine.Succeed)
		h.do(t, model.Call{Op: machine.TryAcquire, Domain: name, Offset: 30_000})
	}
	noError(t, h.ledger.Audit())
}

// Whatever the order in which domains complete, Compact drops every one that has nothing at or above the floor.
func TestPropertyEveryDroppableDomainIsDropped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := open(t, lease.Config{})
		domains := rapid.SampledFrom([]int{10, 100, 1500}).Draw(t, "domains")
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		highest := map[int]int64{}
		floor := int64(0)
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			for range domains * 2 {
				i := rnd.IntN(domains)
				offset := floor + rnd.Int64N(1000)
				a, err := m.TryAcquire(ctx, fmt.Sprint("d", i), offset)
				if err == nil && a.Status != lease.Acquired {
					continue
				}
				if rnd.IntN(2) == 0 && err == nil {
					_, err = m.Succeed(ctx, a.Lease.Domain, a.Lease.Token)
				} else if err == nil {
					_, err = m.Fail(ctx, a.Lease.Domain, a.Lease.Token)
				}
				if err != nil {
					t.Fatal(err)
				}
				if top, ok := highest[i]; !ok || offset > top {
					highest[i] = offset
				}
			}
			for range 4 {
				floor += rnd.Int64N(400)
				noError(t, m.Compact(ctx, floor))
				for i, top := range highest {
					if top < floor {
						delete(highest, i)
					}
				}
				if n := m.Domains(); n != len(highest) {
					t.Fatalf("L11: floor %d: %d domains, of which %d have something at or above it", floor, n, len(highest))
				}
			}
			noError(t, m.Audit())
		}
	})
}
