// SPDX-License-Identifier: Apache-2.0

// Observers: what they are told, and that nothing they do reaches the ledger.

package lease_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/lease"
	machine "github.com/stopbank/stopbank/lease/internal/step"
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
	next := must(m.Reclaim(ctx, "A", held.Token))(t)
	noError(t, m.Release(ctx, "A", next.Token))
	released := next.Token
	next = must(m.Reclaim(ctx, "A", released))(t)
	_, refused := m.Succeed(ctx, "A", held.Token)
	held.RetryCount = 1
	fail(t, m, next, lease.Failure{Status: lease.GiveUpNextHint, RetryCount: 1, Next: 2})
	a := must(m.AcquireNext(ctx, "A"))(t)
	succeed(t, m, a.Lease, lease.Completion{Status: lease.NoBacklog})
	must(m.Offer(ctx, "A", 2))(t)
	noError(t, m.Compact(ctx, 3))
	floor := m.Compact(ctx, 2)
	want := []lease.Event{
		{Op: "try_acquire", Domain: "A", Offset: 1, Token: held.Token, Result: "acquired"},
		{Op: "fail", Domain: "A", Offset: 1, Token: held.Token, Result: "retry_scheduled", RetryCount: 1},
		{Op: "try_acquire", Domain: "A", Offset: 2, Result: "enqueued"},
		{Op: "reclaim", Result: "ok", Domain: "A", Offset: 1, Token: released, RetryCount: 1},
		{Op: "release", Result: "ok", Domain: "A", Offset: 1, Token: released, RetryCount: 1},
		{Op: "reclaim", Result: "ok", Domain: "A", Offset: 1, Token: next.Token, RetryCount: 1},
		{Op: "succeed", Domain: "A", Token: held.Token, Result: "token_mismatch", Err: refused},
		{Op: "fail", Domain: "A", Offset: 1, Token: next.Token, Result: "give_up_next_hint", RetryCount: 1},
		{Op: "acquire_next", Domain: "A", Offset: 2, Token: a.Lease.Token, Result: "acquired"},
		{Op: "succeed", Domain: "A", Offset: 2, Token: a.Lease.Token, Result: "no_backlog"},
		{Op: "offer", Domain: "A", Offset: 2, Result: "already_processed"},
		{Op: "compact", Result: "ok", Offset: 3},
		{Op: "compact", Result: "floor", Offset: 2, Err: floor},
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
		if e.Op != "compact" {
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

// An event has one code for each status and each kind of error, also when the error is wrapped.
func TestEventCodes(t *testing.T) {
	for err, want := range map[error]string{
		fmt.Errorf("engine: %w", &machine.FloorError{Floor: 3, Got: 2}): "floor",
		&lease.BacklogOrderingError{}:                                   "backlog_ordering",
		&lease.TokenMismatchError{}:                                     "token_mismatch",
		&lease.LeaseNotFoundError{}:                                     "lease_not_found",
		&lease.BacklogFullError{}:                                       "backlog_full",
		&lease.InvalidError{}:                                           "invalid",
		errors.New("the engine's own"):                                  "error",
	} {
		if got := lease.CodeOf(0, err); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
	for status := lease.Acquired; status <= lease.GiveUpNextHint; status++ {
		if got, want := lease.CodeOf(status, nil), strings.ToLower(status.String()); got != want {
			t.Errorf("%v: %s, want %s", status, got, want)
		}
	}
}
