// SPDX-License-Identifier: Apache-2.0

// Ledgers that come and go, over a store that fails, against the model of one ledger that does neither.

package durable_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/model"
	"github.com/stopbank/stopbank/lease/internal/step"
)

func TestPropertyFaults(t *testing.T) {
	var faults, ambiguous, calls int
	rapid.Check(t, func(t *rapid.T) {
		cfg := lease.Config{MaxRetries: rapid.IntRange(0, 2).Draw(t, "MaxRetries"),
			MaxBacklog: rapid.IntRange(0, 4).Draw(t, "MaxBacklog")}
		store := &faulty{}
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "faults"), 0))
		part := rapid.SampledFrom([]float64{0.05, 0.3, 0.7}).Draw(t, "how many")
		fresh := func() *durable.Ledger {
			l := must(durable.Open(durable.Config{
				Store: store, MaxRetries: cfg.MaxRetries, MaxBacklog: cfg.MaxBacklog,
				MaxCached: rapid.IntRange(0, 2).Draw(t, "MaxCached"),
			}))(t)
			return l
		}
		ledgers := []*durable.Ledger{fresh(), fresh()}
		models := map[string]*model.Domain{"A": model.New(), "B": model.New()}
		quiet := func(look func()) {
			store.swap, store.load = nil, nil
			look()
			store.swap, store.load = often(rnd, part, refused, lostBefore, lostAfter, delayed), often(rnd, part/2, lostBefore)
		}
		// settled is the model that the store agrees with, of those that may be.
		settled := func(domain string, l *durable.Ledger, may ...*model.Domain) *model.Domain {
			look := model.Call{Domain: domain}
			var err error
			for _, m := range may {
				c := m.Clone()
				if err = c.Accept(cfg, look, look.Do(ctx, l)); err == nil {
					return c
				}
			}
			t.Fatalf("%s: %v", domain, err)
			return nil
		}
		quiet(func() {})
		call := func(t *rapid.T) {
			calls++
			c := model.Call{
				Op: rapid.SampledFrom([]step.Kind{
					step.TryAcquire, step.TryAcquire, step.Offer, step.AcquireNext, step.AcquireNext,
					step.Succeed, step.Succeed, step.Fail, step.Reclaim, step.Release,
				}).Draw(t, "op"),
				Domain: rapid.SampledFrom([]string{"A", "B"}).Draw(t, "domain"),
				Offset: rapid.Int64Range(-2, 12).Draw(t, "offset"),
			}
			m := models[c.Domain]
			c.Token = m.Highest
			if rapid.IntRange(0, 5).Draw(t, "a wrong token") == 0 {
				c.Token--
			}
			l := ledgers[rapid.IntRange(0, 1).Draw(t, "ledger")]
			reply := c.Do(ctx, l)
			switch {
			case errors.Is(reply.Err, durable.ErrAmbiguous):
				// Whether it was carried out, and with which token, the store knows, once the late ones are in.
				ambiguous++
				store.arrive()
				quiet(func() {
					v := inspect(t, l, c.Domain)
					after := m.Clone()
					told := model.Reply{}
					if v.Lease != nil {
						told.Acquisition, told.Lease = lease.Acquisition{Status: lease.Acquired, Lease: *v.Lease}, *v.Lease
					}
					_ = after.Accept(cfg, c, told) // makes the change, whatever it says of an answer that there was not
					models[c.Domain] = settled(c.Domain, l, m, after)
				})
			case errors.Is(reply.Err, durable.ErrStore):
				quiet(func() { models[c.Domain] = settled(c.Domain, l, m) })
			default:
				noError(t, m.Accept(cfg, c, reply))
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"call": call, "call again": call, "and again": call, "and once more": call,
			"compact": func(t *rapid.T) {
				quiet(func() {
					c := model.Call{Op: step.Compact, Offset: rapid.Int64Range(-2, 12).Draw(t, "floor")}
					reply := c.Do(ctx, ledgers[0])
					for domain, m := range models {
						noError(t, m.Accept(cfg, c, reply))
						inspect(t, ledgers[1], domain) // which thereby learns the floor
					}
				})
			},
			"restart": func(t *rapid.T) { ledgers[rapid.IntRange(0, 1).Draw(t, "ledger")] = fresh() },
			"arrive":  func(*rapid.T) { store.arrive() },
			"": func(t *rapid.T) {
				quiet(func() {
					for domain := range models {
						models[domain] = settled(domain, ledgers[rapid.IntRange(0, 1).Draw(t, "looks")], models[domain])
					}
				})
			},
		})
		for _, n := range store.hits {
			faults += n
		}
	})
	t.Logf("%d calls, %d faults, %d calls ambiguous", calls, faults, ambiguous)
}
