// SPDX-License-Identifier: Apache-2.0

// Done offsets stay done (L4), and their memory is given back (L11).

package lease_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/model"
	machine "github.com/stopbank/stopbank/lease/internal/step"
)

func TestPropertyDoneStaysDone(t *testing.T) {
	play(t, func(*history) func(step) error { return doneStaysDone() })
}

// doneStaysDone judges L4 by what was granted and by the answers that ended it: none of that is granted or waits again, nor is
// anything below the floor that was not live when the floor passed it; and Compact leaves alone what is live.
func doneStaysDone() func(step) error {
	granted, done := map[lease.Token]place{}, map[place]bool{}
	return func(s step) error {
		for _, l := range s.leases() {
			granted[l.Token] = place{l.Domain, l.Offset}
		}
		if at, known := granted[s.call.Token]; s.ended() && known && at.domain == s.call.Domain {
			done[at] = true
		}
		was, now := live(s.before), live(s.after)
		for _, offset := range now {
			if done[place{s.call.Domain, offset}] {
				return fmt.Errorf("%d was done, and now: %+v, lease %+v", offset, s.after, s.after.Lease)
			}
			if offset < s.before.Floor && !slices.Contains(was, offset) {
				return fmt.Errorf("%d is below the floor, and now: %+v, lease %+v", offset, s.after, s.after.Lease)
			}
		}
		if s.call.Op == machine.Compact && !slices.Equal(was, now) {
			return fmt.Errorf("from %+v to %+v", s.before, s.after)
		}
		switch cmp.Or(s.reply.Status, s.reply.Acquisition.Status) {
		case lease.AlreadyProcessed, lease.AlreadyFailed:
			if slices.Contains(was, s.call.Offset) {
				return errors.New("what is live counts as done")
			}
		}
		return nil
	}
}

// live are the offsets that are leased or wait.
func live(v lease.View) []int64 {
	if v.Lease == nil {
		return v.Backlog
	}
	return append([]int64{v.Lease.Offset}, v.Backlog...)
}

// The floor itself is not below the floor, whatever else goes.
func TestTheFloorItselfIsKept(t *testing.T) {
	m := open(t, lease.Config{})
	for offset := range int64(9) {
		held := acquire(t, m, "A", offset)
		if offset%2 == 0 {
			succeed(t, m, held, lease.Completion{Status: lease.NoBacklog})
		} else {
			fail(t, m, held, lease.Failure{Status: lease.GiveUpNoBacklog})
		}
	}
	for floor := range int64(9) {
		noError(t, m.Compact(ctx, floor))
		for offset := range int64(9) {
			want := lease.AlreadyProcessed
			if offset%2 == 1 && offset >= floor {
				want = lease.AlreadyFailed
			}
			if a := wantStatus(t, m, "A", offset, want); a.BelowFloor != (offset < floor) {
				t.Fatalf("L4: floor %d, offset %d: %+v", floor, offset, a)
			}
		}
	}
}

// Also for many offsets, in any order, with the floor rising behind them.
func TestPropertyManyOffsets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := open(t, lease.Config{})
		offsets := rapid.SliceOfNDistinct(rapid.Int64Range(0, 2000), 1, 200, rapid.ID[int64]).Draw(t, "offsets")
		floor := int64(0)
		for i, offset := range offsets {
			a, err := m.TryAcquire(ctx, "A", offset)
			if err != nil {
				t.Fatal(err)
			}
			if offset < floor {
				if a.Status != lease.AlreadyProcessed || !a.BelowFloor {
					t.Fatalf("L4: %d below %d: %+v", offset, floor, a)
				}
			} else {
				if i%3 == 0 {
					_, err = m.Fail(ctx, "A", a.Lease.Token)
				} else {
					_, err = m.Succeed(ctx, "A", a.Lease.Token)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if rapid.IntRange(0, 9).Draw(t, "compact") == 0 {
				floor += rapid.Int64Range(0, 300).Draw(t, "by")
				noError(t, m.Compact(ctx, floor))
			}
			noError(t, m.Audit())
		}
		processed, failed := 0, 0
		for i, offset := range offsets {
			want := lease.AlreadyProcessed
			if offset >= floor {
				processed++
				if i%3 == 0 {
					processed--
					failed++
					want = lease.AlreadyFailed
				}
			}
			if status, err := m.Offer(ctx, "A", offset); err != nil || status != want {
				t.Fatalf("L4: Offer(%d) = %v, %v, want %v (floor %d)", offset, status, err, want, floor)
			}
		}
		if v := inspect(t, m, "A"); v.Processed != processed || v.Failed != failed {
			t.Fatalf("L4: view %+v, want %d and %d", v, processed, failed)
		}
	})
}

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
	h.judge = doneStaysDone()
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
	held, ready := 0, 0
	for _, name := range names {
		if v := inspect(t, h.ledger, name); v.Lease != nil {
			held++
		} else if len(v.Backlog) > 0 {
			ready++
		}
	}
	for range h.ledger.Held(ctx) {
		held--
	}
	for range h.ledger.Ready(ctx) {
		ready--
	}
	if held != 0 || ready != 0 {
		t.Fatalf("L4: Held and Ready miss %d and %d domains", held, ready)
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
				if err != nil {
					t.Fatal(err)
				}
				if a.Status != lease.Acquired {
					continue
				}
				if rnd.IntN(2) == 0 {
					_, err = m.Succeed(ctx, a.Lease.Domain, a.Lease.Token)
				} else {
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
