package lease_test

// This file is about observers: what they are told, and that nothing they do reaches the ledger.

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/lease"
)

// An observer may call the ledger, may panic and may end its goroutine: no lock is held and the decision stands.
type observer func(lease.Event)

func (o observer) Observe(e lease.Event) { o(e) }

func TestObserverIsContained(t *testing.T) {
	defer goleak.VerifyNone(t)
	var m *lease.Memory
	var events []lease.Event
	mood := ""
	m = open(t, lease.Config{MaxRetries: 1, Observer: observer(func(e lease.Event) {
		events = append(events, e)
		if e.Domain != "" {
			inspect(t, m, e.Domain) // would not return under the lock
		}
		switch mood {
		case "panic":
			panic("an observer's bug")
		case "exit":
			runtime.Goexit()
		}
	})})
	mood = "panic"
	held := acquire(t, m, "A", 1)
	mood = "exit"
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = m.Fail(ctx, "A", held.Token)
		t.Error("the goroutine outlived Goexit")
	}()
	<-done
	mood = ""
	wantStatus(t, m, "A", 2, lease.Enqueued)
	next, err := m.Reclaim(ctx, "A", held.Token)
	if err != nil {
		t.Fatal(err)
	}
	noError(t, m.Release(ctx, "A", next.Token))
	released := next.Token
	if next, err = m.Reclaim(ctx, "A", released); err != nil {
		t.Fatal(err)
	}
	_, refused := m.Succeed(ctx, "A", held.Token)
	held.RetryCount = 1
	fail(t, m, next, lease.Failure{Status: lease.GiveUpNextHint, RetryCount: 1, Next: 2})
	a := must(m.AcquireNext(ctx, "A"))(t)
	succeed(t, m, a.Lease, lease.Completion{Status: lease.NoBacklog})
	must(m.Offer(ctx, "A", 2))(t)
	noError(t, m.Compact(ctx, 3))
	floor := m.Compact(ctx, 2)
	want := []lease.Event{
		{Op: lease.OpTryAcquire, Domain: "A", Offset: 1, Token: held.Token, Acquire: lease.Acquired},
		{Op: lease.OpFail, Domain: "A", Offset: 1, Token: held.Token, Fail: lease.RetryScheduled, RetryCount: 1},
		{Op: lease.OpTryAcquire, Domain: "A", Offset: 2, Acquire: lease.Enqueued},
		{Op: lease.OpReclaim, Domain: "A", Offset: 1, Token: released, RetryCount: 1},
		{Op: lease.OpRelease, Domain: "A", Offset: 1, Token: released, RetryCount: 1},
		{Op: lease.OpReclaim, Domain: "A", Offset: 1, Token: next.Token, RetryCount: 1},
		{Op: lease.OpSucceed, Domain: "A", Token: held.Token, Err: refused},
		{Op: lease.OpFail, Domain: "A", Offset: 1, Token: next.Token, Fail: lease.GiveUpNextHint, RetryCount: 1, Next: 2},
		{Op: lease.OpAcquireNext, Domain: "A", Offset: 2, Token: a.Lease.Token, Acquire: lease.Acquired},
		{Op: lease.OpSucceed, Domain: "A", Offset: 2, Token: a.Lease.Token, Complete: lease.NoBacklog},
		{Op: lease.OpOffer, Domain: "A", Offset: 2, Acquire: lease.AlreadyProcessed},
		{Op: lease.OpCompact, Offset: 3},
		{Op: lease.OpCompact, Offset: 2, Err: floor},
	}
	if len(events) != len(want) {
		t.Fatalf("%d events, want %d: %+v", len(events), len(want), events)
	}
	for i := range want {
		if events[i] != want[i] {
			t.Errorf("event %d:\n\t%+v, want\n\t%+v", i, events[i], want[i])
		}
	}
}

// Compact tells its observer under no lock either, not even its own.
func TestObserverOfCompactMayCompact(t *testing.T) {
	var m *lease.Memory
	var floors []int64
	m = open(t, lease.Config{Observer: observer(func(e lease.Event) {
		if e.Op != lease.OpCompact {
			return
		}
		floors = append(floors, e.Offset)
		if v := inspect(t, m, "A"); v.Floor != e.Offset {
			t.Errorf("told of floor %d while it is %d", e.Offset, v.Floor)
		}
		if e.Offset < 3 {
			if err := m.Compact(ctx, e.Offset+1); err != nil { // would not return under the lock
				t.Error(err)
			}
		}
	})})
	noError(t, m.Compact(ctx, 1))
	if !slices.Equal(floors, []int64{1, 2, 3}) {
		t.Fatalf("told of the floors %v", floors)
	}
}

// An event has one word for what came of it, also when its error is wrapped, and logs what is set.
func TestEventSaysWhatCameOfIt(t *testing.T) {
	for _, c := range []struct {
		event  lease.Event
		result string
		logged string
	}{
		{lease.Event{Op: lease.OpOffer, Domain: "A", Offset: 2, Acquire: lease.AlreadyProcessed}, "ALREADY_PROCESSED", "[op=Offer result=ALREADY_PROCESSED domain=A offset=2]"},
		{lease.Event{Op: lease.OpSucceed, Domain: "A", Token: 7, Complete: lease.NextHint}, "NEXT_HINT", "[op=Succeed result=NEXT_HINT domain=A offset=0 token=7 next=0]"},
		{
			lease.Event{Op: lease.OpFail, Domain: "A", Fail: lease.GiveUpNextHint, RetryCount: 3, Next: 9},
			"GIVE_UP_NEXT_HINT", "[op=Fail result=GIVE_UP_NEXT_HINT domain=A offset=0 retry_count=3 next=9]",
		},
		{lease.Event{Op: lease.OpCompact, Offset: 3}, "OK", "[op=Compact result=OK offset=3]"},
		{
			lease.Event{Op: lease.OpCompact, Offset: 2, Err: fmt.Errorf("engine: %w", &lease.FloorError{Floor: 3, Got: 2})},
			"FLOOR", "[op=Compact result=FLOOR offset=2 err=engine: lease: floor 2 is below the ledger's floor 3]",
		},
		{lease.Event{Err: &lease.BacklogOrderingError{}}, "BACKLOG_ORDERING", ""},
		{lease.Event{Err: &lease.TokenMismatchError{}}, "TOKEN_MISMATCH", ""},
		{lease.Event{Err: &lease.LeaseNotFoundError{}}, "LEASE_NOT_FOUND", ""},
		{lease.Event{Err: &lease.BacklogFullError{}}, "BACKLOG_FULL", ""},
		{lease.Event{Err: &lease.InvalidError{}}, "INVALID", ""},
		{lease.Event{Err: errors.New("the engine's own")}, "ERROR", ""},
	} {
		if got := c.event.Result(); got != c.result {
			t.Errorf("%+v: %s, want %s", c.event, got, c.result)
		}
		if got := c.event.LogValue().String(); c.logged != "" && got != c.logged {
			t.Errorf("logged: %s, want %s", got, c.logged)
		}
	}
}
