// SPDX-License-Identifier: Apache-2.0

// Package leasetest is the contract of lease.Ledger as a test suite for authors of engines.
//
//	func TestConformance(t *testing.T) {
//		leasetest.Run(t, func(t testing.TB, cfg lease.Config) lease.Ledger { … })
//	}
//
// It has three parts. The machine makes long random runs of valid and invalid calls, and compares every answer and every state
// with a naive model written from the contract. The scenarios are what chance does not come to: walks of many domains, values at
// the ends of their ranges, names that are nearly the same, and a context that is done. The histories let
// several clients call concurrently, and ask porcupine (after Wing and Gong, "Testing and verifying concurrent objects",
// 1993, and Lowe, "Testing for linearizability", 2017) whether some order of the calls, in which no call comes before one
// that had ended when it began, explains every answer. Each domain is checked separately, because the contract promises
// atomicity per domain.
package leasetest

import (
	"slices"
	"testing"

	"github.com/stopbank/stopbank/lease"
)

// Open returns a new empty ledger for cfg, separate from every other, or ends the test. cfg is always one that lease.NewMemory
// accepts.
//
// Every scenario calls it, some for several ledgers; Machine calls it for each case of rapid (a hundred, or -rapid.checks,
// and more while rapid shrinks a failure), Histories for each round. Close resources with t.Cleanup; t is the test of the
// part, not of the case, so nothing is closed before the part ends. An engine with connections should share them among its
// ledgers, and tell ledgers apart by a name or a prefix.
type Open func(t testing.TB, cfg lease.Config) lease.Ledger

// check is one test of the suite. It needs only a testing.TB, so a test of the suite can watch it fail.
type check struct {
	name string
	run  func(t testing.TB, open Open)
}

// Run runs the whole suite, each part under its own name. It takes less than a second on a ledger in memory; over a network
// it makes some tens of thousands of calls. -short reduces the random parts to a fifth.
func Run(t *testing.T, open Open) {
	t.Helper()
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) { c.run(t, open) })
	}
}

func checks() []check {
	return slices.Concat(scenarios(), walkScenarios(), valueScenarios(), []check{{"Machine", machine}, {"Histories", histories}})
}
