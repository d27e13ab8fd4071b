// SPDX-License-Identifier: Apache-2.0

// The second half of the scenarios: rejected and repeated calls, the floor, and calls that change nothing.

package leasetest

import (
	"context"
	"errors"
	"testing"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/model"
	"github.com/stopbank/stopbank/lease/internal/step"
)

// refusesAll makes each call that needs the token of domain's lease.
func (s session) refusesAll(domain string, token lease.Token, family error) {
	s.Helper()
	for _, op := range []step.Kind{step.Succeed, step.Fail, model.GiveUp, step.Reclaim, step.Release} {
		s.do(model.Call{Op: op, Domain: domain, Token: token}, family)
	}
}

func fence(t testing.TB, open Open) {
	s := start(t, open, lease.Config{MaxRetries: 1})
	old := s.try("A", 1, lease.Acquired)
	s.succeed(old)
	held, other := s.try("A", 2, lease.Acquired), s.try("B", 1, lease.Acquired)
	for _, wrong := range []lease.Token{0, old.Token, other.Token, held.Token - 1, held.Token + 1} {
		s.refusesAll("A", wrong, lease.ErrTokenMismatch)
	}
	s.look()
	for _, token := range []lease.Token{0, held.Token} {
		s.refusesAll("C", token, lease.ErrLeaseNotFound)
	}
}

func twice(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	never := s.try("B", 1, lease.Acquired).Token
	for i := range int64(2) {
		held := s.try("A", i, lease.Acquired)
		if i == 0 {
			s.succeed(held)
		} else {
			s.fails(held, lease.GiveUpNoBacklog)
		}
		for _, op := range []step.Kind{step.Succeed, step.Fail} {
			s.do(model.Call{Op: op, Domain: "A", Token: held.Token}, lease.ErrLeaseNotFound) // which says how it ended
		}
		s.do(model.Call{Op: step.Succeed, Domain: "A", Token: never}, lease.ErrLeaseNotFound)
	}
	s.look()
}

func reclaim(t testing.TB, open Open) {
	s := start(t, open, lease.Config{MaxRetries: 1})
	dead := s.try("A", 1, lease.Acquired)
	s.fails(dead, lease.RetryScheduled)
	heir := s.reclaims(dead)
	s.refusesAll("A", dead.Token, lease.ErrTokenMismatch)
	s.succeed(heir)
}

func release(t testing.TB, open Open) {
	s := start(t, open, lease.Config{MaxRetries: 1})
	held := s.try("A", 1, lease.Acquired)
	s.offers("A", 2, lease.Enqueued)
	s.fails(held, lease.RetryScheduled)
	s.do(model.Call{Op: step.Release, Domain: "A", Token: held.Token + 1}, lease.ErrTokenMismatch)
	for range 2 { // repeated, as after a lost reply
		s.releases(held)
		s.look()
	}
	for _, op := range []step.Kind{step.Succeed, step.Fail, model.GiveUp} {
		s.do(model.Call{Op: op, Domain: "A", Token: held.Token}, lease.ErrTokenMismatch)
	}
	if again := s.try("A", 1, lease.AlreadyAcquired); !again.Released || again.RetryCount != 1 {
		s.Fatalf("lease %+v", again)
	}
	s.next("A", lease.Busy)
	s.look()
	heir := s.reclaims(held)
	s.do(model.Call{Op: step.Release, Domain: "A", Token: held.Token}, lease.ErrTokenMismatch) // by who released before
	s.succeed(heir)
	s.do(model.Call{Op: step.Release, Domain: "A", Token: heir.Token}, lease.ErrLeaseNotFound)
}

func compact(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	s.succeed(s.try("A", 1, lease.Acquired))
	s.fails(s.try("A", 2, lease.Acquired), lease.GiveUpNoBacklog)
	s.succeed(s.try("A", 9, lease.Acquired))
	s.succeed(s.try("A", 6, lease.Acquired))
	s.fails(s.try("A", 8, lease.Acquired), lease.GiveUpNoBacklog)
	held := s.try("A", 3, lease.Acquired)
	s.try("A", 4, lease.Enqueued)
	s.try("A", 10, lease.Enqueued)
	s.compacts(6)
	s.look()
	for _, domain := range []string{"A", "never seen"} {
		for _, offset := range []int64{-7, 1, 2, 5} {
			s.try(domain, offset, lease.AlreadyProcessed) // below the floor
			s.offers(domain, offset, lease.AlreadyProcessed)
		}
	}
	s.try("A", 6, lease.AlreadyProcessed) // the floor itself is not below the floor
	s.try("A", 9, lease.AlreadyProcessed)
	s.try("A", 8, lease.AlreadyFailed)
	s.try("A", 3, lease.AlreadyAcquired)
	s.try("A", 4, lease.Enqueued)
	s.succeed(held)
	s.try("A", 3, lease.AlreadyProcessed)
	s.succeed(s.try("A", 4, lease.Acquired))
	s.try("A", 10, lease.Acquired)
	s.try("B", 6, lease.Acquired) // the floor itself is not below the floor
}

func floor(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	s.compacts(5)
	s.compacts(5)
	s.do(model.Call{Op: step.Compact, Offset: 4}, lease.ErrFloor)
	s.try("A", 4, lease.AlreadyProcessed)
	s.try("A", 5, lease.Acquired)
	s.look()
}

func tokens(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	for offset := range int64(60) {
		s.succeed(s.try(domains[offset%3], offset, lease.Acquired))
		if offset%7 == 6 {
			s.compacts(offset + 1) // forgets every processed offset
		}
	}
}

func full(t testing.TB, open Open) {
	s := start(t, open, lease.Config{MaxBacklog: 2})
	s.succeed(s.try("A", 0, lease.Acquired))
	held := s.try("A", 1, lease.Acquired)
	s.try("A", 2, lease.Enqueued)
	s.offers("A", 3, lease.Enqueued)
	s.do(model.Call{Op: step.TryAcquire, Domain: "A", Offset: 4}, lease.ErrBacklogFull)
	s.do(model.Call{Op: step.Offer, Domain: "A", Offset: 4}, lease.ErrBacklogFull)
	// Known offsets are answered as before, although the backlog is full.
	s.try("A", 0, lease.AlreadyProcessed)
	s.try("A", 1, lease.AlreadyAcquired)
	s.try("A", 2, lease.Enqueued)
	s.offers("A", 3, lease.Enqueued)
	s.look()
	s.succeed(held)
	s.try("A", 2, lease.Acquired)
	s.try("A", 4, lease.Enqueued) // room again
}

func inspectCopies(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	s.try("A", 1, lease.Acquired)
	s.try("A", 2, lease.Enqueued)
	s.do(model.Call{Domain: "never seen"}, nil)
	v := s.do(model.Call{Domain: "A"}, nil).View
	v.Lease.Token, v.Backlog[0] = 0, 99
	s.look()
}

// everyCall makes each call on a domain once, in a way that would change A if it were allowed to.
func (s session) everyCall(ctx context.Context, domain string, token lease.Token) map[string]error {
	errs := map[string]error{}
	for op := step.Kind(0); op <= model.GiveUp; op++ {
		if op != step.Compact {
			c := model.Call{Op: op, Domain: domain, Offset: 3, Token: token}
			errs[c.String()] = c.Do(ctx, s.Ledger).Err
		}
	}
	return errs
}

func doneContext(t testing.TB, open Open) {
	s := start(t, open, lease.Config{MaxRetries: 1})
	held := s.try("A", 1, lease.Acquired)
	s.try("A", 2, lease.Enqueued)
	s.offers("B", 1, lease.Enqueued)
	dead, cancel := context.WithCancel(ctx)
	cancel()
	errs := s.everyCall(dead, "A", held.Token)
	errs["Compact"] = s.Compact(dead, 1)
	errs["Ready"], errs["Held"] = nil, nil
	for _, errs["Ready"] = range s.Ready(dead) {
	}
	for _, errs["Held"] = range s.Held(dead) {
	}
	for name, err := range errs {
		if !errors.Is(err, context.Canceled) {
			s.Errorf("%s with a done context: %v", name, err)
		}
	}
	s.look()
}

func emptyDomain(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	for name, err := range s.everyCall(ctx, "", 1) {
		var invalid *lease.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "domain" || !errors.Is(err, lease.ErrInvalid) {
			s.Errorf("%s of no domain: %v", name, err)
		}
	}
}
