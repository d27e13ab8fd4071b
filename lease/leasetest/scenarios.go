// SPDX-License-Identifier: Apache-2.0

// The contract's list of scenarios, in its order, with the contract's sentences.

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

func (s session) next(domain string, want lease.Status) lease.Lease {
	s.Helper()
	a := s.do(model.Call{Op: step.AcquireNext, Domain: domain}, nil).Acquisition
	if a.Status != want {
		s.Fatalf("AcquireNext(%q) = %v, want %v", domain, a.Status, want)
	}
	return a.Lease
}

func (s session) succeed(held lease.Lease) lease.Completion {
	s.Helper()
	return s.do(model.Call{Op: step.Succeed, Domain: held.Domain, Token: held.Token}, nil).Completion
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

func (s session) reclaims(held lease.Lease) lease.Lease {
	s.Helper()
	return s.do(model.Call{Op: step.Reclaim, Domain: held.Domain, Token: held.Token}, nil).Lease
}

func (s session) releases(held lease.Lease) {
	s.Helper()
	s.do(model.Call{Op: step.Release, Domain: held.Domain, Token: held.Token}, nil)
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

func happyPath(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	s.succeed(s.try("A", 1, lease.Acquired))
	s.look()
}

func handOff(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	held := s.try("A", 1, lease.Acquired)
	s.try("A", 2, lease.Enqueued)
	if c := s.succeed(held); c != (lease.Completion{Status: lease.NextHint, Next: 2}) {
		s.Fatalf("Succeed = %+v", c)
	}
	s.look() // 2 waits
	s.try("A", 2, lease.Acquired)
	s.look()
}

func outOfOrder(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	held := s.try("A", 1, lease.Acquired)
	s.try("A", 2, lease.Enqueued)
	s.succeed(held)
	s.do(model.Call{Op: step.TryAcquire, Domain: "A", Offset: 3}, lease.ErrBacklogOrdering)
	s.try("A", 1, lease.AlreadyProcessed) // processed has precedence over out of order
	s.try("A", 2, lease.Acquired)
}

func retry(t testing.TB, open Open) {
	s := start(t, open, lease.Config{MaxRetries: 2})
	held := s.try("A", 1, lease.Acquired)
	for range 2 {
		s.fails(held, lease.RetryScheduled)
		s.try("A", 1, lease.AlreadyAcquired)
	}
	s.succeed(held)
}

func giveUp(t testing.TB, open Open) {
	for maxRetries := range 3 {
		for _, want := range []lease.Status{lease.GiveUpNoBacklog, lease.GiveUpNextHint} {
			s := start(t, open, lease.Config{MaxRetries: maxRetries})
			held := s.try("A", 1, lease.Acquired)
			if want == lease.GiveUpNextHint {
				s.try("A", 2, lease.Enqueued)
			}
			for range maxRetries {
				s.fails(held, lease.RetryScheduled)
			}
			s.fails(held, want)
			s.look()
			s.try("A", 1, lease.AlreadyFailed)
		}
	}
}

func giveUpAtOnce(t testing.TB, open Open) {
	for retries := range 2 {
		s := start(t, open, lease.Config{MaxRetries: 5})
		held := s.try("A", 1, lease.Acquired)
		s.try("A", 2, lease.Enqueued)
		for range retries {
			s.fails(held, lease.RetryScheduled)
		}
		s.do(model.Call{Op: model.GiveUp, Domain: "A", Token: held.Token + 1}, lease.ErrTokenMismatch)
		if f := s.do(model.Call{Op: model.GiveUp, Domain: "A", Token: held.Token}, nil).Failure; f.Status != lease.GiveUpNextHint {
			s.Fatalf("GiveUp = %+v", f)
		}
		s.do(model.Call{Op: model.GiveUp, Domain: "A", Token: held.Token}, lease.ErrLeaseNotFound)
		s.try("A", 1, lease.AlreadyFailed)
		s.try("A", 2, lease.Acquired)
	}
}

func idempotence(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	s.succeed(s.try("A", 1, lease.Acquired))
	s.fails(s.try("A", 2, lease.Acquired), lease.GiveUpNoBacklog)
	again := func() {
		s.try("A", 1, lease.AlreadyProcessed)
		s.try("A", 2, lease.AlreadyFailed)
		s.offers("A", 1, lease.AlreadyProcessed)
		s.offers("A", 2, lease.AlreadyFailed)
		s.look()
	}
	again() // idle
	held := s.try("A", 3, lease.Acquired)
	again() // busy
	s.try("A", 4, lease.Enqueued)
	s.succeed(held)
	again()                       // idle with a backlog
	s.try("B", 1, lease.Acquired) // offsets of different domains are independent
}

func alreadyAcquired(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	s.try("A", 1, lease.Acquired)
	s.try("A", 1, lease.AlreadyAcquired)
	s.look()
}

func arrivalOrder(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	arrived := []int64{1, 9, 4, 7, -2, 30, 5, 0, 8, 6, 3, 2, 11, 10, 40, 39, 38, 37, 36, 35}
	held := s.try("A", arrived[0], lease.Acquired)
	for range 2 {
		for _, offset := range arrived[1:] {
			s.try("A", offset, lease.Enqueued)
		}
	}
	for _, offset := range arrived[1:] {
		s.look()
		s.succeed(held)
		held = s.try("A", offset, lease.Acquired)
	}
	s.succeed(held)
	s.look()
}

func offer(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	s.offers("A", 5, lease.Enqueued) // idle
	s.offers("A", 5, lease.Enqueued)
	s.offers("A", 3, lease.Enqueued) // below it, where TryAcquire would be out of order
	s.look()
	held := s.try("A", 5, lease.Acquired)
	s.offers("A", 5, lease.AlreadyAcquired)
	s.offers("A", 4, lease.Enqueued) // busy
	s.succeed(held)
	s.offers("A", 5, lease.AlreadyProcessed)
}

func acquireNext(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	s.next("A", lease.NothingToDo)
	s.offers("A", 2, lease.Enqueued)
	s.offers("A", 1, lease.Enqueued)
	two := s.next("A", lease.Acquired)
	if two.Offset != 2 {
		s.Fatalf("lease %+v", two)
	}
	s.next("A", lease.Busy)
	s.succeed(two)
	s.succeed(s.next("A", lease.Acquired))
	s.next("A", lease.NothingToDo)
}
