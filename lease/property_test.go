package lease_test

// This file holds the invariants as properties: long random runs, each held against the naive model or against the
// invariant itself.

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/model"
)

// machine drives a ledger and one model per domain with the same calls.
type machine struct {
	cfg     lease.Config
	ledger  *lease.Memory
	domains map[string]*model.Domain
	floor   int64
	tokens  map[lease.Token]string // every token handed out, and to which domain
	recent  []lease.Token
}

func newMachine(t *rapid.T) *machine {
	cfg := lease.Config{MaxRetries: rapid.IntRange(0, 2).Draw(t, "MaxRetries"), MaxBacklog: rapid.IntRange(0, 4).Draw(t, "MaxBacklog")}
	m := &machine{cfg: cfg, ledger: open(t, cfg), domains: map[string]*model.Domain{}, tokens: map[lease.Token]string{}, recent: []lease.Token{0}}
	for _, name := range []string{"A", "B", "C", "D"} {
		m.domains[name] = model.New()
	}
	m.floor = m.domains["A"].Floor
	return m
}

// draw makes a call: mostly one that moves the domain on, now and then a wrong one.
func (m *machine) draw(t *rapid.T) model.Call {
	c := model.Call{
		Op:     rapid.SampledFrom([]lease.OpKind{1, 1, 1, 2, 3, 3, 4, 4, 4, 5, 5, 6, 7}).Draw(t, "op"),
		Domain: rapid.SampledFrom([]string{"A", "A", "B", "C", "D"}).Draw(t, "domain"),
		Offset: rapid.Int64Range(-3, 25).Draw(t, "offset"),
	}
	if c.Op == lease.OpCompact {
		c.Offset -= 8
	}
	d := m.domains[c.Domain]
	if d.Lease != nil && rapid.IntRange(0, 4).Draw(t, "right token") > 0 {
		c.Token = d.Lease.Token
	} else {
		c.Token = rapid.SampledFrom(m.recent).Draw(t, "token")
	}
	return c
}

// do makes the call on both sides and compares the answer and, for the domain called, the state.
func (m *machine) do(t *rapid.T, c model.Call) model.Reply {
	reply := c.Do(ctx, m.ledger)
	if c.Op == lease.OpCompact {
		for name, d := range m.domains {
			if err := d.Accept(m.cfg, c, reply); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if reply.Err == nil {
			m.floor = c.Offset
		}
	} else if err := m.domains[c.Domain].Accept(m.cfg, c, reply); err != nil {
		t.Fatal(err)
	}
	if held := m.domains[c.Domain].Lease; held != nil && m.tokens[held.Token] == "" {
		m.tokens[held.Token] = c.Domain
		m.recent = append(m.recent, held.Token)
		m.recent = m.recent[max(0, len(m.recent)-8):]
	}
	look := model.Call{Domain: c.Domain}
	if err := m.domains[c.Domain].Accept(m.cfg, look, look.Do(ctx, m.ledger)); err != nil {
		t.Fatal(err)
	}
	return reply
}

// Every call and answer, against the model, with Ready, Held and the inner structures checked as well.
func TestPropertyL1L2L3L4L5L7L8L9_Machine(t *testing.T) {
	made := 0
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		t.Repeat(map[string]func(*rapid.T){
			"call": func(t *rapid.T) {
				m.do(t, m.draw(t))
				made++
			},
			"": func(t *rapid.T) {
				if err := m.ledger.Audit(); err != nil {
					t.Fatal(err)
				}
				m.checkWalks(t)
			},
		})
	})
	t.Logf("%d steps", made)
}

func (m *machine) checkWalks(t *rapid.T) {
	ready, held := map[string]int64{}, map[string]lease.Lease{}
	for head, err := range m.ledger.Ready(ctx) {
		if _, twice := ready[head.Domain]; twice || err != nil {
			t.Fatalf("Ready: %+v, %v", head, err)
		}
		ready[head.Domain] = head.Offset
	}
	for l, err := range m.ledger.Held(ctx) {
		if _, twice := held[l.Domain]; twice || err != nil {
			t.Fatalf("Held: %+v, %v", l, err)
		}
		held[l.Domain] = l
	}
	for name, d := range m.domains {
		switch {
		case d.Lease != nil:
			if held[name] != *d.Lease {
				t.Fatalf("%s: Held %+v, want %+v", name, held[name], *d.Lease)
			}
			delete(held, name)
		case len(d.Backlog) > 0:
			if head, ok := ready[name]; !ok || head != d.Backlog[0] {
				t.Fatalf("%s: Ready %d %t, want %d", name, head, ok, d.Backlog[0])
			}
			delete(ready, name)
		}
	}
	if len(ready)+len(held) > 0 {
		t.Fatalf("neither ready nor held: %v %v", ready, held)
	}
}

func TestPropertyL1_OneLeasePerDomain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		holder := map[string]lease.Lease{}
		for range rapid.IntRange(1, 150).Draw(t, "calls") {
			c := m.draw(t)
			r := m.do(t, c)
			switch {
			case r.Err != nil:
			case r.Acquisition.Status == lease.Acquired:
				if old, taken := holder[c.Domain]; taken {
					t.Fatalf("%s: %+v granted while %+v is out", c.Domain, r.Acquisition.Lease, old)
				}
				holder[c.Domain] = r.Acquisition.Lease
			case r.Completion.Status != 0, r.Failure.Status > lease.RetryScheduled:
				delete(holder, c.Domain)
			}
		}
	})
}

func TestPropertyL2_Disjoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		for range rapid.IntRange(1, 150).Draw(t, "calls") {
			m.do(t, m.draw(t))
			if err := m.ledger.Audit(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A backlog long enough to be indexed, through growth and shrinking.
func TestPropertyL2_LongBacklog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := open(t, lease.Config{})
		waiting := map[int64]bool{}
		stride := rapid.SampledFrom([]int64{1, 3, 64, 1 << 40}).Draw(t, "stride")
		for phase := range 6 {
			for range rapid.IntRange(0, 80).Draw(t, "calls") {
				if phase%2 == 0 {
					offset := stride * rapid.Int64Range(-60, 60).Draw(t, "offset")
					status, err := m.Offer(ctx, "A", offset)
					if err != nil {
						t.Fatal(err)
					}
					if status == lease.Enqueued {
						waiting[offset] = true
					}
				} else if a, err := m.AcquireNext(ctx, "A"); err != nil {
					t.Fatal(err)
				} else if a.Status == lease.Acquired {
					if !waiting[a.Lease.Offset] {
						t.Fatalf("%d came twice", a.Lease.Offset)
					}
					delete(waiting, a.Lease.Offset)
					if _, err := m.Succeed(ctx, "A", a.Lease.Token); err != nil {
						t.Fatal(err)
					}
				}
				if err := m.Audit(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if v := inspect(t, m, "A"); len(v.Backlog) != len(waiting) {
			t.Fatalf("%d wait, want %d", len(v.Backlog), len(waiting))
		}
	})
}

func TestPropertyL3_OrderOfArrival(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := open(t, lease.Config{})
		var arrived, left []int64
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			offset := rapid.Int64Range(0, 400).Draw(t, "offset")
			if rapid.IntRange(0, 3).Draw(t, "take") > 0 {
				status, err := m.Offer(ctx, "A", offset)
				if err != nil {
					t.Fatal(err)
				}
				if status == lease.Enqueued && !slices.Contains(arrived, offset) {
					arrived = append(arrived, offset)
				}
				continue
			}
			before := inspect(t, m, "A").Backlog
			if len(before) > 0 && offset != before[0] { // who asks for another one than the first gets nothing, and changes nothing
				if a, err := m.TryAcquire(ctx, "A", offset); a.Status == lease.Acquired {
					t.Fatalf("%d was leased (%v) before %v", offset, err, before)
				}
				if after := inspect(t, m, "A").Backlog; !slices.Equal(after, before) {
					t.Fatalf("refusing %d, the backlog went from %v to %v", offset, before, after)
				}
			}
			a, err := m.AcquireNext(ctx, "A")
			if err != nil {
				t.Fatal(err)
			}
			if a.Status != lease.Acquired {
				continue
			}
			if after := inspect(t, m, "A").Backlog; !slices.Equal(after, before[1:]) {
				t.Fatalf("the backlog went from %v to %v", before, after)
			}
			left = append(left, a.Lease.Offset)
			if _, err := m.Succeed(ctx, "A", a.Lease.Token); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(left, arrived[:len(left)]) {
			t.Fatalf("arrived %v, left %v", arrived, left)
		}
	})
}

func TestPropertyL4_TerminalStaysTerminal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		done := map[model.Call]bool{}
		for range rapid.IntRange(1, 200).Draw(t, "calls") {
			c := m.draw(t)
			held := m.domains[c.Domain].Lease
			if held != nil {
				at := *held
				held = &at
			}
			r := m.do(t, c)
			if r.Err != nil {
				continue
			}
			if r.Completion.Status != 0 || r.Failure.Status > lease.RetryScheduled {
				done[model.Call{Domain: c.Domain, Offset: held.Offset}] = true
			}
			if a := r.Acquisition; a.Status == lease.Acquired && done[model.Call{Domain: c.Domain, Offset: a.Lease.Offset}] {
				t.Fatalf("%s: %d acquired again", c.Domain, a.Lease.Offset)
			}
			for _, offset := range inspect(t, m.ledger, c.Domain).Backlog {
				if done[model.Call{Domain: c.Domain, Offset: offset}] {
					t.Fatalf("%s: %d waits again", c.Domain, offset)
				}
			}
		}
	})
}

// The floor itself is not below the floor, whatever else goes.
func TestL4_TheFloorItselfIsKept(t *testing.T) {
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
		if err := m.Compact(ctx, floor); err != nil {
			t.Fatal(err)
		}
		for offset := range int64(9) {
			want := lease.AlreadyProcessed
			if offset%2 == 1 && offset >= floor {
				want = lease.AlreadyFailed
			}
			if a := wantStatus(t, m, "A", offset, want); a.BelowFloor != (offset < floor) {
				t.Fatalf("floor %d, offset %d: %+v", floor, offset, a)
			}
		}
	}
}

// Also for many offsets, in any order, with the floor rising behind them.
func TestPropertyL4_ManyOffsets(t *testing.T) {
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
					t.Fatalf("%d below %d: %+v", offset, floor, a)
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
				if err := m.Compact(ctx, floor); err != nil {
					t.Fatal(err)
				}
			}
			if err := m.Audit(); err != nil {
				t.Fatal(err)
			}
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
				t.Fatalf("Offer(%d) = %v, %v, want %v (floor %d)", offset, status, err, want, floor)
			}
		}
		if v := inspect(t, m, "A"); v.Processed != processed || v.Failed != failed {
			t.Fatalf("view %+v, want %d and %d", v, processed, failed)
		}
	})
}

// Whatever the order in which domains complete, Compact drops every one that has nothing at or above the floor.
func TestPropertyL11_EveryDroppableDomainIsDropped(t *testing.T) {
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
				if err := m.Compact(ctx, floor); err != nil {
					t.Fatal(err)
				}
				for i, top := range highest {
					if top < floor {
						delete(highest, i)
					}
				}
				if n := m.Domains(); n != len(highest) {
					t.Fatalf("floor %d: %d domains, of which %d have something at or above it", floor, n, len(highest))
				}
			}
			if err := m.Audit(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Over thousands of domains: a Compact that drops most of them, and so moves the others to new places, keeps every
// lease, every backlog and every offset above the floor.
func TestPropertyL4_ManyDomains(t *testing.T) {
	const domains = 8000
	rnd := rand.New(rand.NewPCG(1, 1))
	cfg := lease.Config{MaxRetries: 1}
	m := open(t, cfg)
	models := make([]*model.Domain, domains)
	names := make([]string, domains)
	for i := range models {
		models[i], names[i] = model.New(), fmt.Sprint("domain ", rnd.Uint64()>>rnd.IntN(60), i)
	}
	do := func(i int, c model.Call) {
		t.Helper()
		c.Domain = names[i]
		if err := models[i].Accept(cfg, c, c.Do(ctx, m)); err != nil {
			t.Fatal(err)
		}
	}
	compact := func(floor int64) {
		c := model.Call{Op: lease.OpCompact, Offset: floor}
		r := c.Do(ctx, m)
		for _, d := range models {
			if err := d.Accept(cfg, c, r); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Audit(); err != nil {
			t.Fatal(err)
		}
	}
	for offset := range int64(20_000) {
		i := rnd.IntN(domains)
		d := models[i]
		late := offset - rnd.Int64N(50)
		switch {
		case len(d.Backlog) > 0 && d.Lease == nil:
			do(i, model.Call{Op: lease.OpAcquireNext})
		case rnd.IntN(100) == 0:
			do(i, model.Call{Op: lease.OpOffer, Offset: late})
		default:
			do(i, model.Call{Op: lease.OpTryAcquire, Offset: late})
		}
		if d.Lease != nil && rnd.IntN(100) > 0 {
			if rnd.IntN(8) == 0 {
				do(i, model.Call{Op: lease.OpFail, Token: d.Lease.Token})
				do(i, model.Call{Op: lease.OpFail, Token: d.Lease.Token})
			} else {
				do(i, model.Call{Op: lease.OpSucceed, Token: d.Lease.Token})
			}
		}
		if offset%5000 == 4999 {
			compact(offset - 8000)
		}
	}
	full := m.Domains()
	compact(25_000)
	if left := m.Domains(); left == 0 || left > full/4 {
		t.Fatalf("%d of %d domains left: this run shows nothing", left, full)
	}
	held, ready := 0, 0
	for i, d := range models {
		do(i, model.Call{})
		if d.Lease != nil {
			held++
		} else if len(d.Backlog) > 0 {
			ready++
		}
	}
	for range m.Held(ctx) {
		held--
	}
	for range m.Ready(ctx) {
		ready--
	}
	if held != 0 || ready != 0 {
		t.Fatalf("Held and Ready miss %d and %d domains", held, ready)
	}
	for i, d := range models { // and life goes on
		if d.Lease != nil {
			do(i, model.Call{Op: lease.OpSucceed, Token: d.Lease.Token})
		}
		do(i, model.Call{Op: lease.OpTryAcquire, Offset: 30_000})
	}
	if err := m.Audit(); err != nil {
		t.Fatal(err)
	}
}

func TestPropertyL5_OnlyTheCurrentTokenActs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		for range rapid.IntRange(1, 150).Draw(t, "calls") {
			c := m.draw(t)
			if c.Op < lease.OpSucceed || c.Op > lease.OpReclaim {
				m.do(t, c)
				continue
			}
			if rapid.Bool().Draw(t, "near miss") {
				c.Token += lease.Token(rapid.Uint64Range(0, 2).Draw(t, "off by")) - 1
			}
			before := inspect(t, m.ledger, c.Domain)
			r := c.Do(ctx, m.ledger)
			after := inspect(t, m.ledger, c.Domain)
			current := before.Lease != nil && before.Lease.Token == c.Token
			if current != (r.Err == nil) {
				t.Fatalf("%v: %v, held %+v", c, r.Err, before.Lease)
			}
			if !current && !reflect.DeepEqual(before, after) {
				t.Fatalf("%v: an error changed %+v to %+v", c, before, after)
			}
			if err := m.domains[c.Domain].Accept(m.cfg, c, r); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A reply that was lost: the same call again says what became of the first.
func TestPropertyL5_LostReply(t *testing.T) {
	m := open(t, lease.Config{})
	for i, give := range []bool{false, true} {
		held := acquire(t, m, "A", int64(i+1))
		want := lease.LeaseNotFoundError{Domain: "A", Got: held.Token, Outcome: lease.OutcomeProcessed, Offset: int64(i + 1)}
		if give {
			fail(t, m, held, lease.Failure{Status: lease.GiveUpNoBacklog})
			want.Outcome = lease.OutcomeFailed
		} else {
			succeed(t, m, held, lease.Completion{Status: lease.NoBacklog})
		}
		for range 2 {
			_, err := m.Succeed(ctx, "A", held.Token)
			var got *lease.LeaseNotFoundError
			if !errors.As(err, &got) || *got != want {
				t.Fatalf("%+v, want %+v", got, want)
			}
		}
		_, err := m.Succeed(ctx, "A", held.Token+1)
		var got *lease.LeaseNotFoundError
		if !errors.As(err, &got) || got.Outcome != lease.OutcomeUnknown {
			t.Fatalf("a token never handed out: %+v", got)
		}
	}
}

func TestPropertyL7_RetriesKeepTheLease(t *testing.T) {
	for maxRetries := range 4 {
		synctest.Test(t, func(t *testing.T) {
			m := open(t, lease.Config{MaxRetries: maxRetries})
			start := time.Now()
			held := acquire(t, m, "A", 7)
			if !held.AcquiredAt.Equal(start) {
				t.Fatalf("acquired at %v, want %v", held.AcquiredAt, start)
			}
			for n := range maxRetries {
				time.Sleep(time.Hour) // virtual
				fail(t, m, held, lease.Failure{Status: lease.RetryScheduled, RetryCount: n + 1})
				if n%2 == 1 {
					next, err := m.Reclaim(ctx, "A", held.Token)
					if err != nil || next.Token <= held.Token {
						t.Fatalf("Reclaim = %+v, %v", next, err)
					}
					held.Token = next.Token
				}
				held.RetryCount = n + 1
				if a := wantStatus(t, m, "A", 7, lease.AlreadyAcquired); a.Lease != held {
					t.Fatalf("lease %+v, want %+v", a.Lease, held)
				}
			}
			fail(t, m, held, lease.Failure{Status: lease.GiveUpNoBacklog, RetryCount: maxRetries})
		})
	}
}

func TestPropertyL8_NothingIsHandedOff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := open(t, lease.Config{})
		held := acquire(t, m, "A", 0)
		backlog := rapid.SliceOfDistinct(rapid.Int64Range(1, 99), rapid.ID[int64]).Draw(t, "backlog")
		for _, offset := range backlog {
			wantStatus(t, m, "A", offset, lease.Enqueued)
		}
		var next int64
		var hinted bool
		if rapid.Bool().Draw(t, "succeed") {
			c, err := m.Succeed(ctx, "A", held.Token)
			if err != nil {
				t.Fatal(err)
			}
			next, hinted = c.Next, c.Status == lease.NextHint
		} else {
			f, err := m.Fail(ctx, "A", held.Token)
			if err != nil {
				t.Fatal(err)
			}
			next, hinted = f.Next, f.Status == lease.GiveUpNextHint
		}
		v := inspect(t, m, "A")
		if v.Lease != nil || !slices.Equal(v.Backlog, backlog) {
			t.Fatalf("after the end: %+v", v)
		}
		if hinted != (len(backlog) > 0) || hinted && next != backlog[0] {
			t.Fatalf("hint %d %t for %v", next, hinted, backlog)
		}
	})
}

func TestPropertyL9_TokensRise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := open(t, lease.Config{})
		owner := map[lease.Token]string{}
		last := map[string]lease.Token{}
		offset := int64(0)
		note := func(l lease.Lease) {
			switch {
			case l.Token == 0:
				t.Fatal("token 0")
			case owner[l.Token] != "":
				t.Fatalf("token %d of %s went to %s too", l.Token, owner[l.Token], l.Domain)
			case l.Token <= last[l.Domain]:
				t.Fatalf("%s: token %d after %d", l.Domain, l.Token, last[l.Domain])
			}
			owner[l.Token], last[l.Domain] = l.Domain, l.Token
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			domain := fmt.Sprint("d", rapid.IntRange(0, 5).Draw(t, "domain"))
			offset++
			held := acquire(t, m, domain, offset)
			note(held)
			if rapid.Bool().Draw(t, "reclaim") {
				next, err := m.Reclaim(ctx, domain, held.Token)
				if err != nil {
					t.Fatal(err)
				}
				note(next)
				if _, err := m.Succeed(ctx, domain, held.Token); !errors.Is(err, lease.ErrTokenMismatch) {
					t.Fatalf("the fenced-out holder: %v", err)
				}
				held = next
			}
			for other := range last {
				if other == domain {
					continue
				}
				if _, err := m.Succeed(ctx, other, held.Token); !errors.Is(err, lease.ErrLeaseNotFound) {
					t.Fatalf("%s took a token of %s: %v", other, domain, err)
				}
			}
			if _, err := m.Succeed(ctx, domain, held.Token); err != nil {
				t.Fatal(err)
			}
			if rapid.Bool().Draw(t, "evict") {
				if err := m.Compact(ctx, offset+1); err != nil {
					t.Fatal(err)
				}
				if n := m.Domains(); n != 0 {
					t.Fatalf("%d domains after a Compact above all", n)
				}
			}
		}
	})
}

// Whatever the call, an error leaves every domain as it was.
func TestPropertyErrorsChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		all := func() (views []lease.View) {
			for _, name := range []string{"A", "B", "C", "D"} {
				views = append(views, inspect(t, m.ledger, name))
			}
			return views
		}
		for range rapid.IntRange(1, 100).Draw(t, "calls") {
			before, records := all(), m.ledger.Domains()
			if r := m.do(t, m.draw(t)); r.Err != nil && !(reflect.DeepEqual(before, all()) && records == m.ledger.Domains()) {
				t.Fatalf("%v, and yet %+v became %+v", r.Err, before, all())
			}
		}
	})
}
