// SPDX-License-Identifier: Apache-2.0

// What the random parts do not do: calls under a context that is done, a domain without a name, and a view that its reader changes.

package leasetest

import (
	"context"
	"errors"
	"testing"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/model"
	"github.com/stopbank/stopbank/lease/internal/step"
)

func scenarios() []check {
	return []check{
		{"InspectCopies", inspectCopies},
		{"DoneContextChangesNothing", doneContext},
		{"EmptyDomain", emptyDomain},
	}
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
