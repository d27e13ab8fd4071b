// Package leasetest is the contract of lease.Ledger as a test suite: whoever writes an engine runs it and knows.
//
//	func TestConformance(t *testing.T) {
//		leasetest.Run(t, func(t testing.TB, cfg lease.Config) lease.Ledger { … })
//	}
//
// It has three parts. The scenarios walk through the contract one sentence at a time. The machine makes long random
// runs of calls, right ones and wrong ones, and holds every answer and every state against a naive model written from the
// contract. The histories let several clients call at once and ask porcupine (after Wing and Gong, "Testing and
// verifying concurrent objects", 1993, and Lowe, "Testing for linearizability", 2017) whether some order of the calls, one
// that respects which call ended before which began, explains every answer; domain by domain, because that is how far the
// contract's promise of atomicity goes.
//
// It is a module of its own so that what it is built on stays out of the modules of those who use lease. The two are released
// together and used at the same version: the suite judges by a model that lives in lease/internal/model.
package leasetest

import (
	"slices"
	"testing"

	"github.com/stopbank/stopbank/lease"
)

// Open returns a new empty ledger for cfg, apart from every other that it returned, or ends the test. A cfg that
// lease.NewMemory would refuse is not passed.
//
// It is called by every scenario, some of which need several ledgers, by Machine for each case that rapid makes (a hundred,
// or what -rapid.checks says, and more while it shrinks a failure) and by Histories for each round. What has to be closed it
// closes with t.Cleanup; t is the test of the part, not of the case, so nothing is closed before the part is over. An engine
// with connections had better share them among its ledgers and tell these apart by a name or a prefix.
type Open func(t testing.TB, cfg lease.Config) lease.Ledger

// check is one test of the suite: it needs no more than a testing.TB, so that a test of the suite can watch it fail.
type check struct {
	name string
	run  func(t testing.TB, open Open)
}

// Run runs the whole suite, each part under its own name. It takes seconds on a ledger in memory; one that goes over a network makes
// some tens of thousands of calls. Under -short it makes a fifth of the random ones.
func Run(t *testing.T, open Open) {
	t.Helper()
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) { c.run(t, open) })
	}
}

func checks() []check {
	all := slices.Concat(scenarios(), walkScenarios(), valueScenarios(), []check{{"Machine", machine}, {"Histories", histories}})
	for i, c := range all {
		all[i].run = func(t testing.TB, open Open) { c.run(t, counted(open)) }
	}
	return all
}

// counted is open for the suite, which says how many retries there are: 0 is none.
func counted(open Open) Open {
	return func(t testing.TB, cfg lease.Config) lease.Ledger {
		if cfg.MaxRetries == 0 {
			cfg.MaxRetries = lease.NoRetries
		}
		return open(t, cfg)
	}
}
