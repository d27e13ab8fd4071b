// SPDX-License-Identifier: Apache-2.0

// The random histories on which the ledger is judged: each call is chosen from the answers so far.

package lease_test

import (
	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/model"
	machine "github.com/stopbank/stopbank/lease/internal/step"
)

// A step is one call as one domain saw it. Compact is a step of every domain.
type step struct {
	call          model.Call
	reply         model.Reply
	before, after lease.View
}

// granted reports whether the step granted a lease.
func (s step) granted() bool {
	return s.reply.Err == nil && s.reply.Acquisition.Status == lease.Acquired
}

// ended reports whether the step ended a lease.
func (s step) ended() bool {
	return s.reply.Err == nil && (s.reply.Completion.Status != 0 || s.reply.Failure.Status > lease.RetryScheduled)
}

// history is a ledger, the models of its domains, which judge every step, and their callers.
type history struct {
	ledger  *lease.Memory
	models  *model.Ledger
	names   []string
	callers map[string]*caller
	tokens  []lease.Token // the latest that were handed out
	regime  regime
	stride  int64 // between offsets that are new
}

// caller is what the callers of one domain know of it.
type caller struct {
	held  lease.Lease // Token 0: none
	ended lease.Token // of the lease that ended last
	asked []int64
	known map[int64]bool // what was asked for
	fresh int64          // how many offsets were new
}

func newHistory(t tb, cfg lease.Config, names []string) *history {
	h := &history{ledger: open(t, cfg), models: model.NewLedger(cfg), names: names, callers: map[string]*caller{},
		tokens: []lease.Token{0}, stride: 1}
	for _, name := range names {
		h.callers[name] = &caller{known: map[int64]bool{}}
		h.models.Domain(name)
	}
	return h
}

// do makes the call and has its steps judged.
func (h *history) do(t tb, c model.Call) model.Reply {
	names := []string{c.Domain}
	if c.Op == machine.Compact {
		names = h.names
	}
	before := make([]lease.View, len(names))
	for i, name := range names {
		before[i] = inspect(t, h.ledger, name)
	}
	r := c.Do(ctx, h.ledger)
	wrong := h.models.Accept(c, r)
	for i, name := range names {
		c.Domain = name
		s := step{call: c, reply: r, before: before[i], after: inspect(t, h.ledger, name)}
		if wrong == nil {
			wrong = h.models.Accept(model.Call{Domain: name}, model.Reply{View: s.after})
		}
		if wrong != nil {
			t.Helper()
			t.Fatalf("%s: %s: %v: %v: %v", about(s, wrong), name, c, r, wrong)
		}
		h.callers[name].hear(s)
	}
	for _, l := range []lease.Lease{r.Acquisition.Lease, r.Lease} {
		if l.Token != 0 {
			h.tokens = append(h.tokens[max(0, len(h.tokens)-7):], l.Token)
		}
	}
	return r
}

func (c *caller) hear(s step) {
	if asks := s.call.Op == machine.TryAcquire || s.call.Op == machine.Offer; asks && !c.known[s.call.Offset] {
		c.asked = append(c.asked, s.call.Offset)
		c.known[s.call.Offset] = true
	}
	switch {
	case s.granted():
		c.held = s.reply.Acquisition.Lease
	case s.ended():
		c.held, c.ended = lease.Lease{}, c.held.Token
	case s.reply.Lease.Token != 0:
		c.held = s.reply.Lease
	}
}

// A regime is a kind of history. Calls drawn one by one rarely come to a long backlog, to many offsets given up, or to a lease
// that is tried again and again: so there is a regime for each, and one for everything else.
type regime struct {
	name                   string
	minRetries, maxRetries int
	maxBacklog             []int
	ops                    []machine.Kind
	opening                []machine.Kind // made before anything else, over and over
	least, most            int            // how many times
	again                  []int          // how many times a run is made later
}

func regimes() []regime {
	const try, offer, next, succeed, fail, reclaim, release, compact = machine.TryAcquire, machine.Offer, machine.AcquireNext,
		machine.Succeed, machine.Fail, machine.Reclaim, machine.Release, machine.Compact
	all := []machine.Kind{try, try, try, offer, next, next, succeed, succeed, succeed, fail, fail, reclaim, reclaim,
		release, compact}
	return []regime{
		{name: "short", maxRetries: 2, maxBacklog: []int{0, 1, 2, 3, 4}, ops: all, again: []int{1, 2, 3}},
		{name: "tried again", minRetries: 2, maxRetries: 6, maxBacklog: []int{0, 2}, again: []int{2, 4, 8},
			ops: []machine.Kind{try, try, try, offer, next, next, succeed, fail, fail, fail, fail, reclaim, reclaim,
				release, compact}},
		{name: "long backlog", maxRetries: 1, maxBacklog: []int{0, 0, 120}, ops: all, again: []int{1, 5, 120},
			opening: []machine.Kind{offer, offer, offer, offer, next, succeed}, least: 36, most: 50},
		{name: "given up", maxBacklog: []int{0}, ops: all, again: []int{1, 5, 20},
			opening: []machine.Kind{offer, next, fail}, least: 102, most: 150},
	}
}

// begin draws a ledger and how its history begins.
func begin(t *rapid.T) *history {
	regime := rapid.SampledFrom(regimes()).Draw(t, "regime")
	h := newHistory(t, lease.Config{
		MaxRetries: rapid.IntRange(regime.minRetries, regime.maxRetries).Draw(t, "MaxRetries"),
		MaxBacklog: rapid.SampledFrom(regime.maxBacklog).Draw(t, "MaxBacklog"),
	}, []string{"A", "B", "C", "D"})
	h.regime = regime
	h.stride = rapid.SampledFrom([]int64{1, 3, 64, 1 << 40}).Draw(t, "stride")
	if len(regime.opening) > 0 {
		h.run(t, "A", rapid.IntRange(regime.least, regime.most).Draw(t, "opening"), regime.opening...)
	}
	return h
}

// move makes a call, mostly one that moves its domain on, now and then a wrong one; or it makes the same few calls many times.
func (h *history) move(t *rapid.T) {
	domain := rapid.SampledFrom([]string{"A", "A", "B", "C", "D"}).Draw(t, "domain")
	kind := rapid.IntRange(0, 16).Draw(t, "kind")
	if kind < 11 {
		h.do(t, h.draw(t, domain))
		return
	}
	times := rapid.SampledFrom(h.regime.again).Draw(t, "times")
	switch kind {
	case 11: // what came once comes again
		asked := h.callers[domain].asked
		for i := range min(times, len(asked)) {
			h.do(t, model.Call{Op: machine.Offer, Domain: domain, Offset: asked[len(asked)-1-i]})
		}
	case 12:
		h.run(t, domain, times, machine.Fail, machine.TryAcquire)
	case 13:
		h.run(t, domain, times, machine.Offer)
	case 14:
		h.run(t, domain, times, machine.AcquireNext, machine.Succeed)
	case 15:
		h.run(t, domain, times, machine.AcquireNext, machine.Release, machine.Reclaim, machine.Fail)
	default:
		h.run(t, domain, times, machine.Offer, machine.AcquireNext, machine.Fail)
	}
}

// run makes the same calls over and over: with offsets that are new, the right token, the offset that is held.
func (h *history) run(t *rapid.T, domain string, times int, ops ...machine.Kind) {
	client := h.callers[domain]
	for range times {
		for _, op := range ops {
			c := model.Call{Op: op, Domain: domain}
			switch {
			case op == machine.Offer, op == machine.TryAcquire && client.held.Token == 0:
				c.Offset = h.fresh(client)
			case op == machine.TryAcquire:
				c.Offset = client.held.Offset
			case op != machine.AcquireNext:
				c.Token = client.held.Token
			}
			h.do(t, c)
		}
	}
}

// fresh is an offset above the small ones, new to its domain. Neighbours come in the wrong order.
func (h *history) fresh(client *caller) int64 {
	client.fresh++
	return 30 + h.stride*(client.fresh^1)
}

// draw draws one call on domain.
func (h *history) draw(t *rapid.T, domain string) model.Call {
	c := model.Call{Op: rapid.SampledFrom(h.regime.ops).Draw(t, "op"), Domain: domain}
	client := h.callers[domain]
	switch c.Op {
	case machine.TryAcquire, machine.Offer:
		switch from := rapid.IntRange(0, 6).Draw(t, "offset from"); {
		case from < 3 || len(client.asked) == 0:
			c.Offset = rapid.Int64Range(-3, 25).Draw(t, "offset")
		case from == 3:
			c.Offset = h.fresh(client)
		case from == 4 && client.held.Token != 0:
			c.Offset = client.held.Offset
		default:
			c.Offset = rapid.SampledFrom(client.asked).Draw(t, "asked before")
		}
	case machine.Succeed, machine.Fail, machine.Reclaim, machine.Release:
		if c.Token = client.held.Token; c.Token == 0 {
			c.Token = client.ended
		}
		switch rapid.IntRange(0, 9).Draw(t, "token from") {
		case 8:
			c.Token = rapid.SampledFrom(h.tokens).Draw(t, "token")
		case 9:
			c.Token += lease.Token(rapid.Uint64Range(0, 2).Draw(t, "off by")) - 1
		}
	case machine.Compact:
		c.Offset = rapid.Int64Range(-11, 17).Draw(t, "floor")
		switch from := rapid.IntRange(0, 7).Draw(t, "floor from"); {
		case from == 6 && len(client.asked) > 0:
			c.Offset = rapid.SampledFrom(client.asked).Draw(t, "asked before") + 1
		case from == 7:
			for _, client := range h.callers {
				for _, offset := range client.asked {
					c.Offset = max(c.Offset, offset+1)
				}
			}
		}
	}
	return c
}
