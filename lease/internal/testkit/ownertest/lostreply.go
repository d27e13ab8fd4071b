// SPDX-License-Identifier: Apache-2.0

// A ledger whose engine's replies are lost on their way.

package ownertest

import (
	"context"
	"testing"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/model"
	"github.com/stopbank/stopbank/lease/internal/step"
)

// LostReply loses the reply to each kind of call, after the server has applied it: the ledger notices, and it is applied once. Both
// stores are of one ledger, far at the other end of the line.
func LostReply(t *testing.T, direct, far durable.Store, line *Line) {
	t.Helper()
	ctx, cfg := context.Background(), lease.Config{MaxRetries: 1}
	l, err := durable.New(durable.Config{Store: far, MaxRetries: cfg.MaxRetries})
	if err != nil {
		t.Fatal(err)
	}
	judge := model.NewLedger(cfg)
	first := model.Call{Op: step.TryAcquire, Domain: "A", Offset: 1} // from then on a call is one Swap
	if err := judge.Accept(first, first.Do(ctx, l)); err != nil {
		t.Fatal(err)
	}
	for _, op := range []step.Kind{step.Offer, step.Fail, step.Release, step.Reclaim, step.Succeed, step.AcquireNext, model.GiveUp} {
		c := model.Call{Op: op, Domain: "A", Offset: 2}
		if held := judge.Domain("A").Lease; held != nil {
			c.Token = held.Token
		}
		_, _, connected := far.Load(ctx, "A")
		_, before, err := direct.Load(ctx, "A")
		if err != nil || connected != nil {
			t.Fatal(err, connected)
		}
		lost := line.Dropped()
		line.Drop()
		if err := judge.Accept(c, c.Do(ctx, l)); err != nil || line.Dropped() == lost {
			t.Errorf("%v: %v, %d replies lost", c, err, line.Dropped()-lost)
		}
		if _, version, err := direct.Load(ctx, "A"); err != nil || version <= before {
			t.Errorf("%v: version %d after %d, %v", c, version, before, err)
		}
	}
	if err := judge.Look(ctx, l); err != nil {
		t.Error(err)
	}
}
