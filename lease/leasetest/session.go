// SPDX-License-Identifier: Apache-2.0

// A ledger under test beside the model.

package leasetest

import (
	"context"
	"errors"
	"testing"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/model"
	"github.com/stopbank/stopbank/lease/internal/step"
)

var ctx = context.Background()

// session is a ledger under test, whose every answer the model has to accept. Its methods end the test otherwise, and when an answer is
// not the one that the scenario names.
type session struct {
	testing.TB
	lease.Ledger
	model *model.Ledger
}

func start(t testing.TB, open Open, cfg lease.Config) session {
	return session{t, open(t, cfg), model.NewLedger(cfg)}
}

// make makes a call.
func (s session) make(c model.Call) (model.Reply, error) {
	r := c.Do(ctx, s.Ledger)
	return r, s.model.Accept(c, r)
}

// do makes a call whose error has to be of that family; nil: there has to be none.
func (s session) do(c model.Call, family error) model.Reply {
	s.Helper()
	r, err := s.make(c)
	if err != nil {
		s.Fatal(err)
	}
	if !errors.Is(r.Err, family) {
		s.Fatalf("%v: %v, want %v", c, r, family)
	}
	return r
}

func (s session) try(domain string, offset int64, want lease.Status) lease.Lease {
	s.Helper()
	a := s.do(model.Call{Op: step.TryAcquire, Domain: domain, Offset: offset}, nil).Acquisition
	if a.Status != want {
		s.Fatalf("TryAcquire(%q, %d) = %v, want %v", domain, offset, a.Status, want)
	}
	return a.Lease
}

func (s session) next(domain string) lease.Lease {
	s.Helper()
	a := s.do(model.Call{Op: step.AcquireNext, Domain: domain}, nil).Acquisition
	if a.Status != lease.Acquired {
		s.Fatalf("AcquireNext(%q) = %v, want %v", domain, a.Status, lease.Acquired)
	}
	return a.Lease
}

func (s session) succeed(held lease.Lease) {
	s.Helper()
	s.do(model.Call{Op: step.Succeed, Domain: held.Domain, Token: held.Token}, nil)
}

func (s session) fails(held lease.Lease, want lease.Status) {
	s.Helper()
	f := s.do(model.Call{Op: step.Fail, Domain: held.Domain, Token: held.Token}, nil).Failure
	if f.Status != want {
		s.Fatalf("Fail(%q, %d) = %+v, want %v", held.Domain, held.Token, f, want)
	}
}

func (s session) offers(domain string, offset int64, want lease.Status) {
	s.Helper()
	if status := s.do(model.Call{Op: step.Offer, Domain: domain, Offset: offset}, nil).Status; status != want {
		s.Fatalf("Offer(%q, %d) = %v, want %v", domain, offset, status, want)
	}
}

func (s session) compacts(floor int64) {
	s.Helper()
	s.do(model.Call{Op: step.Compact, Offset: floor}, nil)
}

// look has the ledger tell of all domains.
func (s session) look() {
	s.Helper()
	s.within("a look at everything", func() error { return s.model.Look(ctx, s.Ledger) })
}
