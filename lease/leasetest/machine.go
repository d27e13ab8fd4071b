// SPDX-License-Identifier: Apache-2.0

// The sequential half of the random tests: runs of calls compared with the naive model; rapid shrinks failing runs.

package leasetest

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/model"
	"github.com/stopbank/stopbank/lease/internal/step"
)

var domains = []string{"A", "B", "C"}

func machine(t testing.TB, open Open) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := lease.Config{
			MaxRetries: rapid.IntRange(0, 2).Draw(rt, "MaxRetries"),
			MaxBacklog: rapid.IntRange(0, 4).Draw(rt, "MaxBacklog"),
		}
		m := run{cfg: cfg, ledger: open(t, cfg), models: map[string]*model.Domain{}, owner: map[lease.Token]string{}}
		for _, domain := range domains {
			m.models[domain] = model.New()
		}
		rt.Repeat(map[string]func(*rapid.T){"call": m.call, "": m.look})
	})
}

// run is one random run.
type run struct {
	cfg    lease.Config
	ledger lease.Ledger
	models map[string]*model.Domain
	owner  map[lease.Token]string // domain of each token
	tokens []lease.Token          // the latest tokens
}

// call makes one call, usually one that advances a domain, and checks the answer.
func (m *run) call(t *rapid.T) {
	c := model.Call{
		Op: rapid.SampledFrom([]step.Kind{
			step.TryAcquire, step.TryAcquire, step.Offer, step.AcquireNext, step.AcquireNext,
			step.Succeed, step.Succeed, step.Fail, step.Reclaim, step.Release, step.Compact,
		}).Draw(t, "op"),
		Domain: rapid.SampledFrom(domains).Draw(t, "domain"),
		Offset: rapid.Int64Range(-2, 12).Draw(t, "offset"),
	}
	d := m.models[c.Domain]
	switch {
	case d.Lease != nil && rapid.IntRange(0, 3).Draw(t, "right token") > 0:
		c.Token = d.Lease.Token
	case len(m.tokens) > 0:
		c.Token = rapid.SampledFrom(m.tokens).Draw(t, "token")
	}
	reply := c.Do(ctx, m.ledger)
	if c.Op == step.Compact {
		for _, domain := range domains {
			if err := m.models[domain].Accept(m.cfg, c, reply); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	var before lease.Token
	if d.Lease != nil {
		before = d.Lease.Token
	}
	if err := d.Accept(m.cfg, c, reply); err != nil {
		t.Fatal(err)
	}
	if d.Lease != nil && d.Lease.Token != before {
		if owner := m.owner[d.Lease.Token]; owner != "" {
			t.Fatalf("%v: token %d went to %s before", c, d.Lease.Token, owner)
		}
		m.owner[d.Lease.Token] = c.Domain
		m.tokens = append(m.tokens, d.Lease.Token)
		m.tokens = m.tokens[max(0, len(m.tokens)-6):]
	}
}

// look compares every state, and the results of Held and Ready.
func (m *run) look(t *rapid.T) {
	held, ready := map[string]lease.Lease{}, map[string]int64{}
	for l, err := range m.ledger.Held(ctx) {
		if _, again := held[l.Domain]; again || err != nil {
			t.Fatalf("Held: %+v, %v", l, err)
		}
		held[l.Domain] = l
	}
	for h, err := range m.ledger.Ready(ctx) {
		if _, again := ready[h.Domain]; again || err != nil {
			t.Fatalf("Ready: %+v, %v", h, err)
		}
		ready[h.Domain] = h.Offset
	}
	for _, domain := range domains {
		d, c := m.models[domain], model.Call{Domain: domain}
		if err := d.Accept(m.cfg, c, c.Do(ctx, m.ledger)); err != nil {
			t.Fatal(err)
		}
		l, isHeld := held[domain]
		head, isReady := ready[domain]
		switch {
		case isHeld != (d.Lease != nil) || isHeld && l != *d.Lease:
			t.Fatalf("%s: Held yields %+v (%t), want %+v", domain, l, isHeld, d.Lease)
		case isReady != (d.Lease == nil && len(d.Backlog) > 0) || isReady && head != d.Backlog[0]:
			t.Fatalf("%s: Ready yields %d (%t), want the head of %v", domain, head, isReady, d.Backlog)
		}
	}
}
