package leasetest

// This file is the contract's own list of scenarios, in its order, and the sentences beside it.

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
		{"Scenario6_Idempotence", idempotence},
		{"TryAcquireTwiceIsAlreadyAcquired", alreadyAcquired},
		{"BacklogKeepsArrivalOrderAndNoDuplicates", arrivalOrder},
		{"OfferNeverGrants", offer},
		{"AcquireNextTakesTheHead", acquireNext},
		{"OnlyTheCurrentTokenActs", fence},
		{"CompletingTwiceTellsTheOutcome", twice},
		{"ReclaimRotatesTheToken", reclaim},
		{"CompactSparesWhatIsLive", compact},
		{"FloorNeverGoesDown", floor},
		{"TokensRiseOverCompact", tokens},
		{"FullBacklog", full},
		{"ReadyAndHeld", walks},
		{"InspectCopies", inspectCopies},
		{"DoneContextChangesNothing", doneContext},
		{"EmptyDomain", emptyDomain},
	}
}

var ctx = context.Background()

// session is a ledger under test; its methods end the test when the answer is not the one that is wanted.
type session struct {
	testing.TB
	lease.Ledger
}

func start(t testing.TB, open Open, cfg lease.Config) session { return session{t, open(t, cfg)} }

func (s session) try(domain string, offset int64, want lease.AcquireStatus) lease.Lease {
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

func (s session) offers(domain string, offset int64, want lease.AcquireStatus) {
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
	s.try("A", 1, lease.AlreadyProcessed) // what is done is said before what is out of order
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
	s.try("B", 1, lease.Acquired) // another domain's offset is another offset
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
	s.offers("A", 3, lease.Enqueued) // behind it, where TryAcquire would be out of order
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
	next := func(want lease.AcquireStatus) lease.Lease {
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

func fence(t testing.TB, open Open) {
	s := start(t, open, lease.Config{MaxRetries: 1})
	old := s.try("A", 1, lease.Acquired)
	s.succeed(old, noBacklog)
	held, other := s.try("A", 2, lease.Acquired), s.try("B", 1, lease.Acquired)
	before := s.look("A")
	for _, wrong := range []lease.Token{0, old.Token, other.Token, held.Token - 1, held.Token + 1} {
		want := &lease.TokenMismatchError{Domain: "A", Offset: 2, Got: wrong}
		_, err := s.Succeed(ctx, "A", wrong)
		s.refused("Succeed", err, lease.ErrTokenMismatch, want)
		_, err = s.Ledger.Fail(ctx, "A", wrong)
		s.refused("Fail", err, lease.ErrTokenMismatch, want)
		_, err = s.Reclaim(ctx, "A", wrong)
		s.refused("Reclaim", err, lease.ErrTokenMismatch, want)
	}
	if after := s.look("A"); !reflect.DeepEqual(before, after) {
		s.Fatalf("%+v became %+v", before, after)
	}
	for _, token := range []lease.Token{0, held.Token} {
		want := &lease.LeaseNotFoundError{Domain: "C", Got: token}
		_, err := s.Succeed(ctx, "C", token)
		s.refused("Succeed", err, lease.ErrLeaseNotFound, want)
		_, err = s.Ledger.Fail(ctx, "C", token)
		s.refused("Fail", err, lease.ErrLeaseNotFound, want)
		_, err = s.Reclaim(ctx, "C", token)
		s.refused("Reclaim", err, lease.ErrLeaseNotFound, want)
	}
}

func twice(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	never := s.try("B", 1, lease.Acquired).Token
	for i, how := range []lease.Outcome{lease.OutcomeProcessed, lease.OutcomeFailed} {
		held := s.try("A", int64(i), lease.Acquired)
		if how == lease.OutcomeProcessed {
			s.succeed(held, noBacklog)
		} else {
			s.fails(held, lease.Failure{Status: lease.GiveUpNoBacklog})
		}
		want := &lease.LeaseNotFoundError{Domain: "A", Got: held.Token, Outcome: how, Offset: held.Offset}
		_, err := s.Succeed(ctx, "A", held.Token)
		s.refused("Succeed again", err, lease.ErrLeaseNotFound, want)
		_, err = s.Ledger.Fail(ctx, "A", held.Token)
		s.refused("Fail again", err, lease.ErrLeaseNotFound, want)
		_, err = s.Succeed(ctx, "A", never)
		s.refused("Succeed with a token that was never A's", err, lease.ErrLeaseNotFound, &lease.LeaseNotFoundError{Domain: "A", Got: never})
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
	if v := s.look("A"); v.Lease == nil || *v.Lease != held || !slices.Equal(v.Backlog, []int64{4, 10}) || v.Processed != 2 || v.Failed != 1 || v.Floor != 6 {
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
	s.refused("Compact(4)", s.Compact(ctx, 4), lease.ErrFloor, &lease.FloorError{Floor: 5, Got: 4})
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
			s.compacts(offset + 1) // forgets all that there is
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
	// What is known is said first.
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

func walks(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	s.succeed(s.try("done", 1, lease.Acquired), noBacklog)
	s.try("busy", 1, lease.Acquired)
	held := s.try("held", 2, lease.Acquired)
	s.try("held", 3, lease.Enqueued)
	s.offers("ready", 7, lease.Enqueued)
	s.offers("ready", 5, lease.Enqueued)
	s.offers("also ready", 1, lease.Enqueued)

	leases := map[string]lease.Lease{}
	for l, err := range s.Held(ctx) {
		if _, again := leases[l.Domain]; again || err != nil {
			s.Fatalf("Held: %+v, %v", l, err)
		}
		leases[l.Domain] = l
	}
	if len(leases) != 2 || leases["held"] != held || leases["busy"].Offset != 1 {
		s.Fatalf("Held: %+v", leases)
	}
	heads := map[string]int64{}
	for head, err := range s.Ready(ctx) {
		if _, again := heads[head.Domain]; again || err != nil {
			s.Fatalf("Ready: %+v, %v", head, err)
		}
		heads[head.Domain] = head.Offset
		// The body may use the ledger: no lock is held.
		if a, err := s.AcquireNext(ctx, head.Domain); err != nil || a.Status != lease.Acquired || a.Lease.Offset != head.Offset {
			s.Fatalf("AcquireNext(%s) = %+v, %v", head.Domain, a, err)
		}
	}
	if len(heads) != 2 || heads["ready"] != 7 || heads["also ready"] != 1 {
		s.Fatalf("Ready: %v", heads)
	}
	for head := range s.Ready(ctx) {
		s.Fatalf("still ready: %+v", head)
	}
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

// everyCall makes each call of a ledger once, in a way that would change A if it could.
func (s session) everyCall(ctx context.Context, domain string, token lease.Token) map[string]error {
	errs := map[string]error{}
	_, errs["TryAcquire"] = s.TryAcquire(ctx, domain, 3)
	_, errs["Offer"] = s.Offer(ctx, domain, 4)
	_, errs["AcquireNext"] = s.AcquireNext(ctx, domain)
	_, errs["Reclaim"] = s.Reclaim(ctx, domain, token)
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
