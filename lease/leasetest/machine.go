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
		m := run{ledger: open(t, cfg), model: model.NewLedger(cfg)}
		rt.Repeat(map[string]func(*rapid.T){"call": m.call, "": func(t *rapid.T) {
			if err := m.model.Look(ctx, m.ledger); err != nil {
				t.Fatal(err)
			}
		}})
	})
}

// run is one random run.
type run struct {
	ledger lease.Ledger
	model  *model.Ledger
	tokens []lease.Token // the latest tokens
}

// call makes one call, usually one that advances a domain, and checks the answer.
func (m *run) call(t *rapid.T) {
	c := model.Call{
		Op: rapid.SampledFrom([]step.Kind{
			step.TryAcquire, step.TryAcquire, step.Offer, step.AcquireNext, step.AcquireNext,
			step.Succeed, step.Succeed, step.Fail, model.GiveUp, step.Reclaim, step.Release, step.Compact,
		}).Draw(t, "op"),
		Domain: rapid.SampledFrom(domains).Draw(t, "domain"),
		Offset: rapid.Int64Range(-2, 12).Draw(t, "offset"),
	}
	held, tokens := m.model.Domain(c.Domain).Lease, append([]lease.Token{0}, m.tokens...)
	if held != nil {
		tokens = append(tokens, held.Token-1, held.Token+1)
	}
	if c.Token = rapid.SampledFrom(tokens).Draw(t, "token"); held != nil && rapid.IntRange(0, 3).Draw(t, "right token") > 0 {
		c.Token = held.Token
	}
	reply := c.Do(ctx, m.ledger)
	if err := m.model.Accept(c, reply); err != nil {
		t.Fatal(err)
	}
	for _, l := range []lease.Lease{reply.Acquisition.Lease, reply.Lease} {
		if l.Token != 0 {
			m.tokens = append(m.tokens[max(0, len(m.tokens)-5):], l.Token)
		}
	}
}
