// SPDX-License-Identifier: Apache-2.0

// The contract's list of scenarios, in its order, and the words in which a ledger answers.

package lease_test

import (
	"errors"
	"testing"

	"github.com/stopbank/stopbank/lease"
)

func TestScenario1_HappyPath(t *testing.T) {
	m := open(t, lease.Config{})
	held := acquire(t, m, "A", 1)
	if held.Domain != "A" || held.Offset != 1 || held.Token == 0 || held.RetryCount != 0 || held.AcquiredAt.IsZero() {
		t.Fatalf("lease %+v", held)
	}
	succeed(t, m, held, lease.Completion{Status: lease.NoBacklog})
}

func TestScenario2_QueueThenOrchestratedHandOff(t *testing.T) {
	m := open(t, lease.Config{})
	held := acquire(t, m, "A", 1)
	wantStatus(t, m, "A", 2, lease.Enqueued)
	succeed(t, m, held, lease.Completion{Status: lease.NextHint, Next: 2})
	acquire(t, m, "A", 2)
}

func TestScenario3_OutOfOrderAcquire(t *testing.T) {
	m := open(t, lease.Config{})
	held := acquire(t, m, "A", 1)
	wantStatus(t, m, "A", 2, lease.Enqueued)
	succeed(t, m, held, lease.Completion{Status: lease.NextHint, Next: 2})
	_, err := m.TryAcquire(ctx, "A", 3)
	var ordering *lease.BacklogOrderingError
	if !errors.As(err, &ordering) || *ordering != (lease.BacklogOrderingError{Domain: "A", Expected: 2, Got: 3}) {
		t.Fatalf("error %v", err)
	}
	acquire(t, m, "A", 2)
}

func TestScenario4_Retry(t *testing.T) {
	m := open(t, lease.Config{MaxRetries: 2})
	held := acquire(t, m, "A", 1)
	fail(t, m, held, lease.Failure{Status: lease.RetryScheduled, RetryCount: 1})
	again := wantStatus(t, m, "A", 1, lease.AlreadyAcquired)
	held.RetryCount = 1
	if again.Lease != held {
		t.Fatalf("lease %+v, want %+v", again.Lease, held)
	}
}

func TestScenario5_FinalGiveUp(t *testing.T) {
	for _, waits := range []bool{false, true} {
		m := open(t, lease.Config{MaxRetries: 2})
		held := acquire(t, m, "A", 1)
		want := lease.Failure{Status: lease.GiveUpNoBacklog, RetryCount: 2}
		if waits {
			wantStatus(t, m, "A", 2, lease.Enqueued)
			want.Status, want.Next = lease.GiveUpNextHint, 2
		}
		fail(t, m, held, lease.Failure{Status: lease.RetryScheduled, RetryCount: 1})
		fail(t, m, held, lease.Failure{Status: lease.RetryScheduled, RetryCount: 2})
		fail(t, m, held, want)
		wantStatus(t, m, "A", 1, lease.AlreadyFailed)
		if v := inspect(t, m, "A"); v.Lease != nil || v.Failed != 1 || v.Processed != 0 {
			t.Fatalf("view %+v", v)
		}
	}
}

func TestScenario6_Idempotence(t *testing.T) {
	m := open(t, lease.Config{})
	one := acquire(t, m, "A", 1)
	succeed(t, m, one, lease.Completion{Status: lease.NoBacklog})
	two := acquire(t, m, "A", 2)
	fail(t, m, two, lease.Failure{Status: lease.GiveUpNoBacklog})
	for _, busy := range []bool{false, true} {
		if busy {
			acquire(t, m, "A", 3)
		}
		wantStatus(t, m, "A", 1, lease.AlreadyProcessed)
		wantStatus(t, m, "A", 2, lease.AlreadyFailed)
		if status, err := m.Offer(ctx, "A", 1); status != lease.AlreadyProcessed || err != nil {
			t.Fatalf("Offer = %v, %v", status, err)
		}
		if v := inspect(t, m, "A"); len(v.Backlog) != 0 {
			t.Fatalf("backlog %v", v.Backlog)
		}
	}
}

func TestStatusesPrintAsInTheContract(t *testing.T) {
	for want, s := range map[string]lease.Status{
		"ACQUIRED": lease.Acquired, "ENQUEUED": lease.Enqueued, "ALREADY_ACQUIRED": lease.AlreadyAcquired,
		"ALREADY_PROCESSED": lease.AlreadyProcessed, "ALREADY_FAILED": lease.AlreadyFailed,
		"NOTHING_TO_DO": lease.NothingToDo, "BUSY": lease.Busy,
		"NO_BACKLOG": lease.NoBacklog, "NEXT_HINT": lease.NextHint,
		"RETRY_SCHEDULED": lease.RetryScheduled, "GIVE_UP_NO_BACKLOG": lease.GiveUpNoBacklog,
		"GIVE_UP_NEXT_HINT": lease.GiveUpNextHint,
		"UNDEFINED_0":       lease.Status(0), "UNDEFINED_13": lease.Status(13),
	} {
		if s.String() != want {
			t.Errorf("%d prints %s, want %s", s, s, want)
		}
	}
}
