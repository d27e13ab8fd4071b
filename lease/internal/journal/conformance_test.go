// SPDX-License-Identifier: Apache-2.0

package journal_test

// This file runs the contract's own suite through one claim: over a store, and over one that loses replies.

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/leasetest"
)

func TestConformance(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	leasetest.Run(t, func(t testing.TB, cfg lease.Config) lease.Ledger {
		l := open(t, newServer(), cfg)
		t.Cleanup(func() { noError(t, l.Close(ctx)) })
		return l
	})
}
