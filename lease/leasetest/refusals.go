// SPDX-License-Identifier: Apache-2.0

// The second half of the scenarios: rejected and repeated calls, the floor, and calls that change nothing.

package leasetest

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/step"
)

// refusesAll makes each call that needs the token of domain's lease.
func (s session) refusesAll(domain string, token lease.Token, family, want error) {
	s.Helper()
	_, err := s.Succeed(ctx, domain, token)
	s.refused("Succeed", err, family, want)
	_, err = s.Ledger.Fail(ctx, domain, token)
	s.refused("Fail", err, family, want)
	_, err = s.Reclaim(ctx, domain, token)
	s.refused("Reclaim", err, family, want)
	s.refused("Release", s.Release(ctx, domain, token), family, want)
}

func fence(t testing.TB, open Open) {
	s := start(t, open, lease.Config{MaxRetries: 1})
	old := s.try("A", 1, lease.Acquired)
	s.succeed(old, noBacklog)
	held, other := s.try("A", 2, lease.Acquired), s.try("B", 1, lease.Acquired)
	before := s.look("A")
	for _, wrong := range []lease.Token{0, old.Token, other.Token, held.Token - 1, held.Token + 1} {
		want := &lease.TokenMismatchError{Domain: "A", Offset: 2, Got: wrong}
		s.refusesAll("A", wrong, lease.ErrTokenMismatch, want)
	}
	if after := s.look("A"); !reflect.DeepEqual(before, after) {
		s.Fatalf("%+v became %+v", before, after)
	}
	for _, token := range []lease.Token{0, held.Token} {
		want := &lease.LeaseNotFoundError{Domain: "C", Got: token}
		s.refusesAll("C", token, lease.ErrLeaseNotFound, want)
	}
}

func twice(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	never := s.try("B", 1, lease.Acquired).Token
	for i, status := range []lease.Status{lease.AlreadyProcessed, lease.AlreadyFailed} {
		held := s.try("A", int64(i), lease.Acquired)
		if status == lease.AlreadyProcessed {
			s.succeed(held, noBacklog)
		} else {
			s.fails(held, lease.Failure{Status: lease.GiveUpNoBacklog})
		}
		want := &lease.LeaseNotFoundError{Domain: "A", Got: held.Token, Status: status, Offset: held.Offset}
		_, err := s.Succeed(ctx, "A", held.Token)
		s.refused("Succeed again", err, lease.ErrLeaseNotFound, want)
		_, err = s.Ledger.Fail(ctx, "A", held.Token)
		s.refused("Fail again", err, lease.ErrLeaseNotFound, want)
		_, err = s.Succeed(ctx, "A", never)
		s.refused("Succeed with a token that was never A's", err, lease.ErrLeaseNotFound,
			&lease.LeaseNotFoundError{Domain: "A", Got: never})
	}
	if v := s.look("A"); v.Processed != 1 || v.Failed != 1 {
		s.Fatalf("view %+v", v)
	}
}

func reclaim(t testing.TB, open Open) {
	s := start(t, open, lease.Config{MaxRetries: 1})
	dead := s.try("A", 1, lease.Acquired)
	s.fails(dead, lease.Failure{Status: lease.RetryScheduled, RetryCount: 1})
	heir, err := s.Reclaim(ctx, "A", dead.Token)
	if err != nil || heir.Token <= dead.Token {
		s.Fatalf("Reclaim = %+v, %v", heir, err)
	}
	want := dead
	want.Token, want.RetryCount = heir.Token, 1
	if heir != want {
		s.Fatalf("lease %+v, want %+v", heir, want)
	}
	fenced := &lease.TokenMismatchError{Domain: "A", Offset: 1, Got: dead.Token}
	_, err = s.Reclaim(ctx, "A", dead.Token)
	s.refused("a second Reclaim", err, lease.ErrTokenMismatch, fenced)
	_, err = s.Succeed(ctx, "A", dead.Token)
	s.refused("Succeed of the dead", err, lease.ErrTokenMismatch, fenced)
	s.succeed(heir, noBacklog)
}

func release(t testing.TB, open Open) {
	s := start(t, open, lease.Config{MaxRetries: 1})
	held := s.try("A", 1, lease.Acquired)
	s.offers("A", 2, lease.Enqueued)
	s.fails(held, lease.Failure{Status: lease.RetryScheduled, RetryCount: 1})
	held.RetryCount, held.Released = 1, true
	s.refused("Release with a wrong token", s.Release(ctx, "A", held.Token+1), lease.ErrTokenMismatch,
		&lease.TokenMismatchError{Domain: "A", Offset: 1, Got: held.Token + 1})
	for range 2 { // repeated, as after a lost reply
		if err := s.Release(ctx, "A", held.Token); err != nil {
			s.Fatalf("Release: %v", err)
		}
		if v := s.look("A"); v.Lease == nil || *v.Lease != held || !slices.Equal(v.Backlog, []int64{2}) {
			s.Fatalf("released: %+v, lease %+v, want %+v", v, v.Lease, held)
		}
	}
	fenced := &lease.TokenMismatchError{Domain: "A", Offset: 1, Got: held.Token}
	_, err := s.Succeed(ctx, "A", held.Token)
	s.refused("Succeed of what was released", err, lease.ErrTokenMismatch, fenced)
	_, err = s.Ledger.Fail(ctx, "A", held.Token)
	s.refused("Fail of what was released", err, lease.ErrTokenMismatch, fenced)
	if again := s.try("A", 1, lease.AlreadyAcquired); again != held {
		s.Fatalf("lease %+v, want %+v", again, held)
	}
	if a, err := s.AcquireNext(ctx, "A"); err != nil || a != (lease.Acquisition{Status: lease.Busy}) {
		s.Fatalf("AcquireNext beside what was released: %+v, %v", a, err)
	}
	s.within("Held", func() error { return sameWalk(s.Held(ctx), map[string]lease.Lease{"A": held}, holder) })
	s.within("Ready", func() error { return sameWalk(s.Ready(ctx), nil, waiter) })

	heir, err := s.Reclaim(ctx, "A", held.Token)
	want := held
	want.Token, want.Released = heir.Token, false
	if err != nil || heir.Token <= held.Token || heir != want {
		s.Fatalf("Reclaim = %+v, %v, want %+v", heir, err, want)
	}
	s.refused("Release by who released before", s.Release(ctx, "A", held.Token), lease.ErrTokenMismatch, fenced)
	s.succeed(heir, lease.Completion{Status: lease.NextHint, Next: 2})
	s.refused("Release of what is done", s.Release(ctx, "A", heir.Token), lease.ErrLeaseNotFound,
		&lease.LeaseNotFoundError{Domain: "A", Got: heir.Token, Status: lease.AlreadyProcessed, Offset: 1})
}

func compact(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	s.succeed(s.try("A", 1, lease.Acquired), noBacklog)
	s.fails(s.try("A", 2, lease.Acquired), lease.Failure{Status: lease.GiveUpNoBacklog})
	s.succeed(s.try("A", 9, lease.Acquired), noBacklog)
	s.succeed(s.try("A", 6, lease.Acquired), noBacklog)
	s.fails(s.try("A", 8, lease.Acquired), lease.Failure{Status: lease.GiveUpNoBacklog})
	held := s.try("A", 3, lease.Acquired)
	s.try("A", 4, lease.Enqueued)
	s.try("A", 10, lease.Enqueued)
	s.compacts(6)
	if v := s.look("A"); v.Lease == nil || *v.Lease != held || !slices.Equal(v.Backlog, []int64{4, 10}) || v.Processed != 2 ||
		v.Failed != 1 || v.Floor != 6 {
		s.Fatalf("view %+v", v)
	}
	for _, domain := range []string{"A", "never seen"} {
		for _, offset := range []int64{-7, 1, 2, 5} {
			a, err := s.TryAcquire(ctx, domain, offset)
			if err != nil || a.Status != lease.AlreadyProcessed || !a.BelowFloor {
				s.Fatalf("TryAcquire(%q, %d) = %+v, %v, want ALREADY_PROCESSED below the floor", domain, offset, a, err)
			}
			s.offers(domain, offset, lease.AlreadyProcessed)
		}
	}
	for _, offset := range []int64{6, 9} { // the floor itself is not below the floor
		if a, err := s.TryAcquire(ctx, "A", offset); err != nil || a.Status != lease.AlreadyProcessed || a.BelowFloor {
			s.Fatalf("TryAcquire(A, %d) = %+v, %v", offset, a, err)
		}
	}
	s.try("A", 8, lease.AlreadyFailed)
	s.try("A", 3, lease.AlreadyAcquired)
	s.try("A", 4, lease.Enqueued)
	s.succeed(held, lease.Completion{Status: lease.NextHint, Next: 4})
	s.try("A", 3, lease.AlreadyProcessed)
	s.succeed(s.try("A", 4, lease.Acquired), lease.Completion{Status: lease.NextHint, Next: 10})
	s.try("A", 10, lease.Acquired)
	s.try("B", 6, lease.Acquired) // the floor itself is not below the floor
}

func floor(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	s.compacts(5)
	s.compacts(5)
	s.refused("Compact(4)", s.Compact(ctx, 4), lease.ErrFloor, &step.FloorError{Floor: 5, Got: 4})
	s.try("A", 4, lease.AlreadyProcessed)
	s.try("A", 5, lease.Acquired)
	if v := s.look("A"); v.Floor != 5 {
		s.Fatalf("floor %d", v.Floor)
	}
}

func tokens(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	seen := map[lease.Token]bool{0: true}
	last := map[string]lease.Token{}
	for offset := range int64(60) {
		domain := []string{"A", "B", "C"}[offset%3]
		held := s.try(domain, offset, lease.Acquired)
		if seen[held.Token] || held.Token <= last[domain] {
			s.Fatalf("%s: token %d after %d", domain, held.Token, last[domain])
		}
		seen[held.Token], last[domain] = true, held.Token
		s.succeed(held, noBacklog)
		if offset%7 == 6 {
			s.compacts(offset + 1) // forgets every processed offset
		}
	}
}

func full(t testing.TB, open Open) {
	s := start(t, open, lease.Config{MaxBacklog: 2})
	s.succeed(s.try("A", 0, lease.Acquired), noBacklog)
	s.try("A", 1, lease.Acquired)
	s.try("A", 2, lease.Enqueued)
	s.offers("A", 3, lease.Enqueued)
	before := s.look("A")
	want := &lease.BacklogFullError{Domain: "A", Offset: 4, MaxBacklog: 2}
	_, err := s.TryAcquire(ctx, "A", 4)
	s.refused("TryAcquire", err, lease.ErrBacklogFull, want)
	_, err = s.Offer(ctx, "A", 4)
	s.refused("Offer", err, lease.ErrBacklogFull, want)
	// Known offsets are answered as before, although the backlog is full.
	s.try("A", 0, lease.AlreadyProcessed)
	s.try("A", 1, lease.AlreadyAcquired)
	s.try("A", 2, lease.Enqueued)
	s.offers("A", 3, lease.Enqueued)
	if after := s.look("A"); !reflect.DeepEqual(before, after) {
		s.Fatalf("%+v became %+v", before, after)
	}
	s.succeed(*before.Lease, lease.Completion{Status: lease.NextHint, Next: 2})
	s.try("A", 2, lease.Acquired)
	s.try("A", 4, lease.Enqueued) // room again
}

func inspectCopies(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	held := s.try("A", 1, lease.Acquired)
	s.try("A", 2, lease.Enqueued)
	v := s.look("A")
	v.Lease.Token, v.Backlog[0] = 0, 99
	if v := s.look("A"); *v.Lease != held || v.Backlog[0] != 2 {
		s.Fatalf("the view is no copy: %+v", v)
	}
	if v := s.look("never seen"); v.Domain != "never seen" || v.Lease != nil || len(v.Backlog)+v.Processed+v.Failed != 0 {
		s.Fatalf("view of a domain never seen: %+v", v)
	}
}

// everyCall makes each call of a ledger once, in a way that would change A if it were allowed to.
func (s session) everyCall(ctx context.Context, domain string, token lease.Token) map[string]error {
	errs := map[string]error{}
	_, errs["TryAcquire"] = s.TryAcquire(ctx, domain, 3)
	_, errs["Offer"] = s.Offer(ctx, domain, 4)
	_, errs["AcquireNext"] = s.AcquireNext(ctx, domain)
	_, errs["Reclaim"] = s.Reclaim(ctx, domain, token)
	errs["Release"] = s.Release(ctx, domain, token)
	_, errs["Fail"] = s.Ledger.Fail(ctx, domain, token)
	_, errs["Succeed"] = s.Succeed(ctx, domain, token)
	_, errs["Inspect"] = s.Inspect(ctx, domain)
	return errs
}

func doneContext(t testing.TB, open Open) {
	s := start(t, open, lease.Config{MaxRetries: 1})
	held := s.try("A", 1, lease.Acquired)
	s.try("A", 2, lease.Enqueued)
	s.offers("B", 1, lease.Enqueued)
	before := s.look("A")
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
	if after := s.look("A"); !reflect.DeepEqual(before, after) {
		s.Fatalf("%+v became %+v", before, after)
	}
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
