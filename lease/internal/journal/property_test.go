// SPDX-License-Identifier: Apache-2.0

package journal_test

// This file compares random histories with the model of the contract: replies are lost, owners die at any point, are fenced out,
// and go on calling; the next owner knows what it has to.

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/journal"
	"github.com/stopbank/stopbank/lease/internal/model"
	"github.com/stopbank/stopbank/lease/internal/step"
)

var domains = []string{"A", "B", "C"}

func TestPropertyOwnersDie(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := lease.Config{MaxRetries: rapid.IntRange(0, 2).Draw(rt, "MaxRetries"), MaxBacklog: rapid.IntRange(0, 4).Draw(rt, "MaxBacklog")}
		h := &history{cfg: cfg, server: newServer(), models: map[string]*model.Domain{}, soft: map[string]bool{}, maybe: map[int64]*journal.Ledger{}}
		h.server.fault = func() (f fault) { f, h.fault = h.fault, 0; return f }
		h.server.limit = rapid.SampledFrom([]int{300, 1 << 20}).Draw(rt, "limit")
		for _, domain := range domains {
			h.models[domain] = model.New()
		}
		h.server.growth = rapid.SampledFrom([]int{1, 0}).Draw(rt, "growth")
		h.ledger = open(rt, h.server, cfg)
		rt.Repeat(map[string]func(*rapid.T){
			"call": h.call, "call again": h.call, "and again": h.call, "loses a reply": h.lose, "rests": h.rest, "dies": h.die, "closes": h.close,
			"the dead call": h.dead, "": h.look,
		})
		for _, l := range append(h.former, h.ledger) {
			_ = l.Close(ctx)
		}
	})
}

// history is one random run.
type history struct {
	cfg    lease.Config
	server *server
	fault  fault // of the next append
	ledger *journal.Ledger
	former []*journal.Ledger
	models map[string]*model.Domain
	tokens []lease.Token

	soft  map[string]bool           // the domains whose lease is not in the journal, or may not be
	maybe map[int64]*journal.Ledger // what was done by an owner, and may not be written
}

// call makes one call and checks its answer.
func (h *history) call(t *rapid.T) {
	c := model.Call{Op: rapid.SampledFrom([]step.Kind{
		step.TryAcquire, step.TryAcquire, step.TryAcquire, step.Offer, step.AcquireNext, step.Succeed, step.Succeed, step.Succeed,
		step.Fail, step.Reclaim, step.Release, step.Compact,
	}).Draw(t, "op")}
	place := rapid.IntRange(0, len(domains)-1).Draw(t, "domain")
	c.Domain = domains[place]
	// Every offset has its domain.
	c.Offset = 1000*rapid.Int64Range(0, 1).Draw(t, "far") + int64(len(domains))*rapid.Int64Range(-2, 8).Draw(t, "offset") + int64(place)
	d := h.models[c.Domain]
	switch {
	case d.Lease != nil && rapid.IntRange(0, 5).Draw(t, "right token") > 0:
		c.Token = d.Lease.Token
	case len(h.tokens) > 0:
		c.Token = rapid.SampledFrom(h.tokens).Draw(t, "token")
	}
	if c.Op == step.Compact {
		c.Offset = max(c.Offset-10, d.Floor)
	}
	got := c.Do(ctx, h.ledger)
	switch {
	case errors.Is(got.Err, durable.ErrStore) && c.Op != step.Compact:
		return // nothing has changed
	case c.Op == step.Compact && (errors.Is(got.Err, durable.ErrStore) || errors.Is(got.Err, durable.ErrAmbiguous)):
		if got = c.Do(ctx, h.ledger); got.Err != nil {
			t.Fatalf("%v, again: %v", c, got.Err)
		}
	case errors.Is(got.Err, durable.ErrAmbiguous):
		got = h.applied(t, c, d)
	case c.Op == step.Offer && errors.Is(got.Err, lease.ErrBacklogFull), c.Op == step.TryAcquire && errors.Is(got.Err, lease.ErrBacklogFull):
		if full := (*lease.BacklogFullError)(nil); !errors.As(got.Err, &full) && h.server.limit == 300 {
			return // an entry is full
		}
	}
	if c.Op == step.Compact {
		for _, domain := range domains {
			h.accept(t, c, h.models[domain], got)
		}
		maps.DeleteFunc(h.maybe, func(offset int64, _ *journal.Ledger) bool { return offset < c.Offset })
		return
	}
	if h.maybe[c.Offset] != nil && (c.Op == step.TryAcquire || c.Op == step.Offer) {
		if got.Acquisition.Status != lease.AlreadyProcessed && got.Status != lease.AlreadyProcessed {
			if h.maybe[c.Offset] == h.ledger {
				t.Fatalf("L17: %v: %v, and nobody has died", c, got)
			}
			delete(d.Processed, c.Offset)
		}
		delete(h.maybe, c.Offset)
	}
	backlog := len(d.Backlog) > 0
	held := d.Lease
	h.accept(t, c, d, got)
	switch {
	case got.Err != nil:
	case got.Acquisition.Status == lease.Acquired:
		h.soft[c.Domain] = !backlog
		h.tokens = append(h.tokens[max(0, len(h.tokens)-5):], d.Lease.Token)
	case c.Op == step.Succeed && h.soft[c.Domain]:
		h.maybe[held.Offset] = h.ledger
	case got.Acquisition.Status == lease.Enqueued, got.Status == lease.Enqueued, c.Op == step.Fail, c.Op == step.Reclaim, c.Op == step.Release:
		h.soft[c.Domain] = false
	}
}

func (h *history) accept(t *rapid.T, c model.Call, d *model.Domain, got model.Reply) {
	noError(t, d.Accept(h.cfg, c, got))
}

// applied is the answer that was lost.
func (h *history) applied(t *rapid.T, c model.Call, d *model.Domain) (got model.Reply) {
	v := h.view(t, c.Domain)
	switch {
	case c.Op == step.TryAcquire && v.Lease != nil && v.Lease.Offset == c.Offset, c.Op == step.AcquireNext:
		got.Acquisition = lease.Acquisition{Status: lease.Acquired, Lease: *v.Lease}
	case c.Op == step.TryAcquire:
		got.Acquisition.Status = lease.Enqueued
	case c.Op == step.Offer:
		got.Status = lease.Enqueued
	case c.Op == step.Reclaim:
		got.Lease = *v.Lease
	case c.Op == step.Succeed:
		if got.Completion.Status = lease.NoBacklog; len(v.Backlog) > 0 {
			got.Completion = lease.Completion{Status: lease.NextHint, Next: v.Backlog[0]}
		}
	case c.Op == step.Fail && v.Lease != nil:
		got.Failure = lease.Failure{Status: lease.RetryScheduled, RetryCount: v.Lease.RetryCount}
	case c.Op == step.Fail:
		got.Failure = lease.Failure{Status: lease.GiveUpNoBacklog, RetryCount: d.Lease.RetryCount}
		if len(v.Backlog) > 0 {
			got.Failure.Status, got.Failure.Next = lease.GiveUpNextHint, v.Backlog[0]
		}
	}
	return got
}

// view looks until the store answers.
func (h *history) view(t *rapid.T, domain string) lease.View {
	for range 10 {
		v, err := h.ledger.Inspect(ctx, domain)
		if err == nil {
			return v
		}
		if !errors.Is(err, durable.ErrStore) {
			t.Fatal(err)
		}
	}
	t.Fatal("the store answers, and the ledger does not")
	return lease.View{}
}

// lose loses a reply, and perhaps its call.
func (h *history) lose(t *rapid.T) {
	f := rapid.SampledFrom([]fault{lost, deaf}).Draw(t, "fault")
	h.server.set(func() { h.fault = f })
}

// rest lasts until everything is written.
func (h *history) rest(t *rapid.T) {
	err := h.ledger.Compact(ctx, h.models["A"].Floor)
	for range 3 {
		if err != nil {
			err = h.ledger.Compact(ctx, h.models["A"].Floor)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	h.wrote()
}

// wrote says that everything of the present owner is written.
func (h *history) wrote() {
	maps.DeleteFunc(h.maybe, func(_ int64, by *journal.Ledger) bool { return by == h.ledger })
}

// die has the next owner take over from one that will not be heard of again, though it may go on.
func (h *history) die(t *rapid.T) {
	h.former = append(h.former, h.ledger)
	h.reopen(t)
}

// close has the owner give the ledger back.
func (h *history) close(t *rapid.T) {
	if err := h.ledger.Close(ctx); err != nil {
		if !errors.Is(err, durable.ErrStore) {
			t.Fatal(err)
		}
	} else {
		h.wrote()
	}
	h.reopen(t)
}

// reopen checks what the next owner knows.
func (h *history) reopen(t *rapid.T) {
	h.ledger = open(t, h.server, h.cfg)
	for _, domain := range domains {
		d := h.models[domain]
		v := h.view(t, domain)
		switch {
		case d.Lease == nil && v.Lease != nil, v.Lease != nil && *v.Lease != *d.Lease:
			t.Fatalf("L17: %s: the next owner finds the lease %+v, want %+v", domain, v.Lease, d.Lease)
		case v.Lease == nil && d.Lease != nil && !h.soft[domain]:
			t.Fatalf("L17: %s: the lease %+v is lost", domain, *d.Lease)
		case !slices.Equal(v.Backlog, d.Backlog):
			t.Fatalf("L17: %s: backlog %d, want %d", domain, v.Backlog, d.Backlog)
		case v.Floor != d.Floor:
			t.Fatalf("L17: %s: floor %d, want %d", domain, v.Floor, d.Floor)
		}
		if v.Lease == nil {
			d.Lease = nil
		}
		h.soft[domain] = false
		d.Forgettable = true
	}
}

// dead has a former owner make a call, which changes nothing for the present one.
func (h *history) dead(t *rapid.T) {
	if len(h.former) == 0 {
		return
	}
	l := rapid.SampledFrom(h.former).Draw(t, "former")
	domain := rapid.SampledFrom(domains).Draw(t, "domain")
	a, err := l.TryAcquire(ctx, domain, rapid.Int64Range(-6, 1024).Draw(t, "offset"))
	if err == nil && a.Status == lease.Acquired {
		if d := h.models[domain]; a.Lease.Token >= h.first() && d.Highest > 0 {
			t.Fatalf("L17: a former owner has token %d of a later claim", a.Lease.Token)
		}
		if _, err := l.Fail(ctx, domain, a.Lease.Token); err == nil {
			t.Fatal("L17: a former owner has counted a failure")
		}
	}
}

// first is below all tokens of the present claim.
func (h *history) first() lease.Token { return lease.Token(h.server.claim << 29) }

// look compares every state that the present owner shows.
func (h *history) look(t *rapid.T) {
	held, ready := map[string]lease.Lease{}, map[string]int64{}
	for l, err := range h.ledger.Held(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		held[l.Domain] = l
	}
	for head, err := range h.ledger.Ready(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		ready[head.Domain] = head.Offset
	}
	for _, domain := range domains {
		d, v := h.models[domain], h.view(t, domain)
		l, isHeld := held[domain]
		head, isReady := ready[domain]
		switch {
		case (v.Lease != nil) != (d.Lease != nil) || v.Lease != nil && *v.Lease != *d.Lease, !slices.Equal(v.Backlog, d.Backlog):
			t.Fatalf("%s: %+v, want lease %+v and backlog %d", domain, v, d.Lease, d.Backlog)
		case isHeld != (d.Lease != nil) || isHeld && l != *d.Lease:
			t.Fatalf("%s: Held yields %+v (%t), want %+v", domain, l, isHeld, d.Lease)
		case isReady != (d.Lease == nil && len(d.Backlog) > 0) || isReady && head != d.Backlog[0]:
			t.Fatalf("%s: Ready yields %d (%t), want the head of %v", domain, head, isReady, d.Backlog)
		}
	}
}
