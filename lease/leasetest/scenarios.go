// SPDX-License-Identifier: Apache-2.0

// The contract's list of scenarios, in its order, with the contract's sentences.

package leasetest

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/stopbank/stopbank/lease"
)

func scenarios() []check {
	return []check{
		{"Scenario1_HappyPath", happyPath},
		{"Scenario2_QueueThenOrchestratedHandOff", handOff},
		{"Scenario3_OutOfOrderAcquire", outOfOrder},
		{"Scenario4_Retry", retry},
		{"Scenario5_FinalGiveUp", giveUp},
		{"GiveUpAtOnce", giveUpAtOnce},
		{"Scenario6_Idempotence", idempotence},
		{"TryAcquireTwiceIsAlreadyAcquired", alreadyAcquired},
		{"BacklogKeepsArrivalOrderAndNoDuplicates", arrivalOrder},
		{"OfferNeverGrants", offer},
		{"AcquireNextTakesTheHead", acquireNext},
		{"OnlyTheCurrentTokenActs", fence},
		{"CompletingTwiceTellsTheOutcome", twice},
		{"ReclaimRotatesTheToken", reclaim},
		{"ReleaseKeepsAllButTheOwner", release},
		{"CompactSparesWhatIsLive", compact},
		{"FloorNeverGoesDown", floor},
		{"TokensRiseOverCompact", tokens},
		{"FullBacklog", full},
		{"InspectCopies", inspectCopies},
		{"DoneContextChangesNothing", doneContext},
		{"EmptyDomain", emptyDomain},
	}
}

var ctx = context.Background()

// session is a ledger under test. Its methods end the test when an answer is not the wanted one.
type session struct {
	testing.TB
	lease.Ledger
}

func start(t testing.TB, open Open, cfg lease.Config) session { return session{t, open(t, cfg)} }

func (s session) try(domain string, offset int64, want lease.Status) lease.Lease {
	s.Helper()
	a, err := s.TryAcquire(ctx, domain, offset)
	if err != nil || a.Status != want {
		s.Fatalf("TryAcquire(%q, %d) = %v, %v, want %v", domain, offset, a.Status, err, want)
	}
	return a.Lease
}

func (s session) succeed(held lease.Lease, want lease.Completion) {
	s.Helper()
	if c, err := s.Succeed(ctx, held.Domain, held.Token); err != nil || c != want {
		s.Fatalf("Succeed(%q, %d) = %+v, %v, want %+v", held.Domain, held.Token, c, err, want)
	}
}

func (s session) fails(held lease.Lease, want lease.Failure) {
	s.Helper()
	if f, err := s.Ledger.Fail(ctx, held.Domain, held.Token); err != nil || f != want {
		s.Fatalf("Fail(%q, %d) = %+v, %v, want %+v", held.Domain, held.Token, f, err, want)
	}
}

func (s session) offers(domain string, offset int64, want lease.Status) {
	s.Helper()
	if status, err := s.Offer(ctx, domain, offset); err != nil || status != want {
		s.Fatalf("Offer(%q, %d) = %v, %v, want %v", domain, offset, status, err, want)
	}
}

func (s session) look(domain string) lease.View {
	s.Helper()
	v, err := s.Inspect(ctx, domain)
	if err != nil {
		s.Fatalf("Inspect(%q): %v", domain, err)
	}
	return v
}

func (s session) compacts(floor int64) {
	s.Helper()
	if err := s.Compact(ctx, floor); err != nil {
		s.Fatalf("Compact(%d): %v", floor, err)
	}
}

// refused checks that got is want, wrapped or not, under its sentinel.
func (s session) refused(what string, got, sentinel, want error) {
	s.Helper()
	if !errors.Is(got, sentinel) {
		s.Fatalf("%s: %v, want %v", what, got, sentinel)
	}
	for e := got; e != nil; e = errors.Unwrap(e) {
		if reflect.DeepEqual(e, want) {
			return
		}
	}
	s.Fatalf("%s: %#v, want %#v", what, got, want)
}

var noBacklog = lease.Completion{Status: lease.NoBacklog}

func happyPath(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	held := s.try("A", 1, lease.Acquired)
	if held.Domain != "A" || held.Offset != 1 || held.Token == 0 || held.AcquiredAt.IsZero() || held.RetryCount != 0 {
		s.Fatalf("lease %+v", held)
	}
	s.succeed(held, noBacklog)
}

func handOff(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	held := s.try("A", 1, lease.Acquired)
	s.try("A", 2, lease.Enqueued)
	s.succeed(held, lease.Completion{Status: lease.NextHint, Next: 2})
	if v := s.look("A"); v.Lease != nil || !slices.Equal(v.Backlog, []int64{2}) {
		s.Fatalf("after the hint: %+v", v)
	}
	s.try("A", 2, lease.Acquired)
	if v := s.look("A"); len(v.Backlog) != 0 {
		s.Fatalf("after the acquire: %+v", v)
	}
}

func outOfOrder(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	held := s.try("A", 1, lease.Acquired)
	s.try("A", 2, lease.Enqueued)
	s.succeed(held, lease.Completion{Status: lease.NextHint, Next: 2})
	_, err := s.TryAcquire(ctx, "A", 3)
	s.refused("TryAcquire", err, lease.ErrBacklogOrdering, &lease.BacklogOrderingError{Domain: "A", Expected: 2, Got: 3})
	s.try("A", 1, lease.AlreadyProcessed) // processed has precedence over out of order
	s.try("A", 2, lease.Acquired)
}

func retry(t testing.TB, open Open) {
	s := start(t, open, lease.Config{MaxRetries: 2})
	held := s.try("A", 1, lease.Acquired)
	for n := 1; n <= 2; n++ {
		s.fails(held, lease.Failure{Status: lease.RetryScheduled, RetryCount: n})
		held.RetryCount = n
		if again := s.try("A", 1, lease.AlreadyAcquired); again != held {
			s.Fatalf("lease %+v, want %+v", again, held)
		}
	}
	s.succeed(held, noBacklog)
}

func giveUp(t testing.TB, open Open) {
	for maxRetries := range 3 {
		for _, waits := range []bool{false, true} {
			s := start(t, open, lease.Config{MaxRetries: maxRetries})
			held := s.try("A", 1, lease.Acquired)
			want := lease.Failure{Status: lease.GiveUpNoBacklog, RetryCount: maxRetries}
			if waits {
				s.try("A", 2, lease.Enqueued)
				want.Status, want.Next = lease.GiveUpNextHint, 2
			}
			for n := range maxRetries {
				s.fails(held, lease.Failure{Status: lease.RetryScheduled, RetryCount: n + 1})
			}
			s.fails(held, want)
			if v := s.look("A"); v.Lease != nil || v.Failed != 1 || v.Processed != 0 {
				s.Fatalf("after giving up: %+v", v)
			}
			s.try("A", 1, lease.AlreadyFailed)
		}
	}
}

func giveUpAtOnce(t testing.TB, open Open) {
	for retries := range 2 {
		s := start(t, open, lease.Config{MaxRetries: 5})
		held := s.try("A", 1, lease.Acquired)
		s.try("A", 2, lease.Enqueued)
		for n := range retries {
			s.fails(held, lease.Failure{Status: lease.RetryScheduled, RetryCount: n + 1})
		}
		_, err := s.GiveUp(ctx, "A", held.Token+1)
		s.refused("GiveUp", err, lease.ErrTokenMismatch, &lease.TokenMismatchError{Domain: "A", Offset: 1, Got: held.Token + 1})
		f, err := s.GiveUp(ctx, "A", held.Token)
		if want := (lease.Failure{Status: lease.GiveUpNextHint, RetryCount: retries, Next: 2}); err != nil || f != want {
			s.Fatalf("GiveUp = %+v, %v, want %+v", f, err, want)
		}
		_, err = s.GiveUp(ctx, "A", held.Token)
		s.refused("GiveUp again", err, lease.ErrLeaseNotFound,
			&lease.LeaseNotFoundError{Domain: "A", Got: held.Token, Status: lease.AlreadyFailed, Offset: 1})
		s.try("A", 1, lease.AlreadyFailed)
		s.try("A", 2, lease.Acquired)
	}
}

func idempotence(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	s.succeed(s.try("A", 1, lease.Acquired), noBacklog)
	s.fails(s.try("A", 2, lease.Acquired), lease.Failure{Status: lease.GiveUpNoBacklog})
	for _, state := range []string{"idle", "busy", "idle with a backlog"} {
		switch state {
		case "busy":
			s.try("A", 3, lease.Acquired)
		case "idle with a backlog":
			s.try("A", 4, lease.Enqueued)
			s.succeed(s.try("A", 3, lease.AlreadyAcquired), lease.Completion{Status: lease.NextHint, Next: 4})
		}
		before := s.look("A")
		s.try("A", 1, lease.AlreadyProcessed)
		s.try("A", 2, lease.AlreadyFailed)
		s.offers("A", 1, lease.AlreadyProcessed)
		s.offers("A", 2, lease.AlreadyFailed)
		if after := s.look("A"); !reflect.DeepEqual(before, after) {
			s.Fatalf("%s: %+v became %+v", state, before, after)
		}
	}
	s.try("B", 1, lease.Acquired) // offsets of different domains are independent
}

func alreadyAcquired(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	held := s.try("A", 1, lease.Acquired)
	if again := s.try("A", 1, lease.AlreadyAcquired); again != held {
		s.Fatalf("lease %+v, want %+v", again, held)
	}
	if v := s.look("A"); v.Lease == nil || *v.Lease != held || len(v.Backlog) != 0 {
		s.Fatalf("view %+v", v)
	}
}

func arrivalOrder(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	arrived := []int64{1, 9, 4, 7, -2, 30, 5, 0, 8, 6, 3, 2, 11, 10, 40, 39, 38, 37, 36, 35}
	s.try("A", arrived[0], lease.Acquired)
	for range 2 {
		for _, offset := range arrived[1:] {
			s.try("A", offset, lease.Enqueued)
		}
	}
	for i, offset := range arrived {
		v := s.look("A")
		if v.Lease == nil || v.Lease.Offset != offset || !slices.Equal(v.Backlog, arrived[i+1:]) {
			s.Fatalf("at %d: %+v, want the lease on %d and %v waiting", i, v, offset, arrived[i+1:])
		}
		if i+1 == len(arrived) {
			s.succeed(*v.Lease, noBacklog)
			break
		}
		s.succeed(*v.Lease, lease.Completion{Status: lease.NextHint, Next: arrived[i+1]})
		s.try("A", arrived[i+1], lease.Acquired)
	}
}

func offer(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	s.offers("A", 5, lease.Enqueued) // idle
	s.offers("A", 5, lease.Enqueued)
	s.offers("A", 3, lease.Enqueued) // below it, where TryAcquire would be out of order
	if v := s.look("A"); v.Lease != nil || !slices.Equal(v.Backlog, []int64{5, 3}) {
		s.Fatalf("view %+v", v)
	}
	held := s.try("A", 5, lease.Acquired)
	s.offers("A", 5, lease.AlreadyAcquired)
	s.offers("A", 4, lease.Enqueued) // busy
	s.succeed(held, lease.Completion{Status: lease.NextHint, Next: 3})
	s.offers("A", 5, lease.AlreadyProcessed)
}

func acquireNext(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	next := func(want lease.Status) lease.Lease {
		t.Helper()
		a, err := s.AcquireNext(ctx, "A")
		if err != nil || a.Status != want {
			s.Fatalf("AcquireNext = %+v, %v, want %v", a, err, want)
		}
		if want != lease.Acquired && a.Lease != (lease.Lease{}) {
			s.Fatalf("%v hands out %+v", want, a.Lease)
		}
		return a.Lease
	}
	next(lease.NothingToDo)
	s.offers("A", 2, lease.Enqueued)
	s.offers("A", 1, lease.Enqueued)
	two := next(lease.Acquired)
	if two.Domain != "A" || two.Offset != 2 || two.Token == 0 {
		s.Fatalf("lease %+v", two)
	}
	next(lease.Busy)
	s.succeed(two, lease.Completion{Status: lease.NextHint, Next: 1})
	s.succeed(next(lease.Acquired), noBacklog)
	next(lease.NothingToDo)
}
