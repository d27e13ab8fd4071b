package lease_test

// This file is the contract's list of scenarios, in its order, and what the contract says beside them.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease"
)

var ctx = context.Background()

// tb is what the helpers need of a *testing.T or a *rapid.T.
type tb interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func open(t tb, cfg lease.Config) *lease.Memory {
	t.Helper()
	m, err := lease.NewMemory(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func acquire(t tb, l lease.Ledger, domain string, offset int64) lease.Lease {
	t.Helper()
	a, err := l.TryAcquire(ctx, domain, offset)
	if err != nil || a.Status != lease.Acquired {
		t.Fatalf("TryAcquire(%s, %d) = %v, %v, want ACQUIRED", domain, offset, a.Status, err)
	}
	return a.Lease
}

func wantStatus(t tb, l lease.Ledger, domain string, offset int64, want lease.AcquireStatus) lease.Acquisition {
	t.Helper()
	a, err := l.TryAcquire(ctx, domain, offset)
	if err != nil || a.Status != want {
		t.Fatalf("TryAcquire(%s, %d) = %v, %v, want %v", domain, offset, a.Status, err, want)
	}
	return a
}

func succeed(t tb, l lease.Ledger, held lease.Lease, want lease.Completion) {
	t.Helper()
	if got, err := l.Succeed(ctx, held.Domain, held.Token); err != nil || got != want {
		t.Fatalf("Succeed = %+v, %v, want %+v", got, err, want)
	}
}

func fail(t tb, l lease.Ledger, held lease.Lease, want lease.Failure) {
	t.Helper()
	if got, err := l.Fail(ctx, held.Domain, held.Token); err != nil || got != want {
		t.Fatalf("Fail = %+v, %v, want %+v", got, err, want)
	}
}

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

func inspect(t tb, l lease.Ledger, domain string) lease.View {
	t.Helper()
	v, err := l.Inspect(ctx, domain)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestStatusesPrintAsInTheContract(t *testing.T) {
	for want, s := range map[string]fmt.Stringer{
		"ACQUIRED": lease.Acquired, "ENQUEUED": lease.Enqueued, "ALREADY_ACQUIRED": lease.AlreadyAcquired,
		"ALREADY_PROCESSED": lease.AlreadyProcessed, "ALREADY_FAILED": lease.AlreadyFailed,
		"NOTHING_TO_DO": lease.NothingToDo, "BUSY": lease.Busy,
		"NO_BACKLOG": lease.NoBacklog, "NEXT_HINT": lease.NextHint,
		"RETRY_SCHEDULED": lease.RetryScheduled, "GIVE_UP_NO_BACKLOG": lease.GiveUpNoBacklog, "GIVE_UP_NEXT_HINT": lease.GiveUpNextHint,
		"UNKNOWN": lease.OutcomeUnknown, "PROCESSED": lease.OutcomeProcessed, "FAILED": lease.OutcomeFailed,
		"TryAcquire": lease.OpTryAcquire, "Offer": lease.OpOffer, "AcquireNext": lease.OpAcquireNext, "Succeed": lease.OpSucceed,
		"Fail": lease.OpFail, "Reclaim": lease.OpReclaim, "Compact": lease.OpCompact,
		"UNDEFINED_0": lease.AcquireStatus(0), "UNDEFINED_9": lease.Outcome(9),
	} {
		if s.String() != want {
			t.Errorf("%T prints %s, want %s", s, s, want)
		}
	}
}

func TestConfigIsValidated(t *testing.T) {
	tooMany := math.MaxInt32
	tooMany++ // where an int has 32 bits this is negative, and refused as well
	for _, c := range []struct {
		cfg   lease.Config
		field string
	}{
		{lease.Config{MaxRetries: -1}, "MaxRetries"},
		{lease.Config{MaxRetries: math.MinInt}, "MaxRetries"},
		{lease.Config{MaxRetries: tooMany}, "MaxRetries"},
		{lease.Config{MaxBacklog: -1}, "MaxBacklog"},
	} {
		m, err := lease.NewMemory(c.cfg)
		var invalid *lease.InvalidError
		if m != nil || !errors.As(err, &invalid) || invalid.Field != c.field || !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%+v: %v, %v", c.cfg, m, err)
		}
	}
}

// Every error has a type with fields under a sentinel, and leaves the ledger alone.
func TestBadInput(t *testing.T) {
	m := open(t, lease.Config{MaxBacklog: 1})
	held := acquire(t, m, "A", 10)
	wantStatus(t, m, "A", 11, lease.Enqueued)
	done := acquire(t, m, "B", 12)
	succeed(t, m, done, lease.Completion{Status: lease.NoBacklog})
	if err := m.Compact(ctx, 5); err != nil {
		t.Fatal(err)
	}
	a, b := inspect(t, m, "A"), inspect(t, m, "B")
	dead, cancel := context.WithCancel(ctx)
	cancel()
	calls := map[string]func(context.Context, string) error{
		"TryAcquire":  func(ctx context.Context, d string) error { _, err := m.TryAcquire(ctx, d, 12); return err },
		"Offer":       func(ctx context.Context, d string) error { _, err := m.Offer(ctx, d, 12); return err },
		"AcquireNext": func(ctx context.Context, d string) error { _, err := m.AcquireNext(ctx, d); return err },
		"Succeed":     func(ctx context.Context, d string) error { _, err := m.Succeed(ctx, d, held.Token); return err },
		"Fail":        func(ctx context.Context, d string) error { _, err := m.Fail(ctx, d, held.Token); return err },
		"Reclaim":     func(ctx context.Context, d string) error { _, err := m.Reclaim(ctx, d, held.Token); return err },
		"Inspect":     func(ctx context.Context, d string) error { _, err := m.Inspect(ctx, d); return err },
	}
	for name, call := range calls {
		var invalid *lease.InvalidError
		if err := call(ctx, ""); !errors.As(err, &invalid) || invalid.Field != "domain" {
			t.Errorf("%s of no domain: %v", name, err)
		}
		if err := call(ctx, string(make([]byte, 1<<16))); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "65536") {
			t.Errorf("%s of a huge domain: %v", name, err)
		}
		if err := call(dead, "A"); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a done context: %v", name, err)
		}
		if err := call(nil, "A"); !errors.As(err, &invalid) || invalid.Field != "ctx" {
			t.Errorf("%s with a nil context: %v", name, err)
		}
	}
	if err := m.Compact(nil, 6); !errors.Is(err, lease.ErrInvalid) { //nolint:staticcheck // the same
		t.Errorf("Compact with a nil context: %v", err)
	}
	var walked error
	for _, walked = range m.Held(nil) { //nolint:staticcheck // the same
	}
	if !errors.Is(walked, lease.ErrInvalid) {
		t.Errorf("Held with a nil context: %v", walked)
	}
	if err := m.Compact(dead, 6); !errors.Is(err, context.Canceled) {
		t.Errorf("Compact with a done context: %v", err)
	}
	turns := 0
	for head, err := range m.Ready(dead) {
		if turns++; head != (lease.Head{}) || !errors.Is(err, context.Canceled) {
			t.Errorf("Ready with a done context: %+v, %v", head, err)
		}
	}
	for held, err := range m.Held(dead) {
		if turns++; held != (lease.Lease{}) || !errors.Is(err, context.Canceled) {
			t.Errorf("Held with a done context: %+v, %v", held, err)
		}
	}
	if turns != 2 {
		t.Errorf("Ready and Held with a done context: %d turns, want one each", turns)
	}
	check := func(what string, err, sentinel, want error) {
		t.Helper()
		if !errors.Is(err, sentinel) || !reflect.DeepEqual(err, want) {
			t.Errorf("%s: %#v, want %#v", what, err, want)
		}
		if err.Error() == "" {
			t.Errorf("%s: an error that says nothing", what)
		}
	}
	_, err := m.TryAcquire(ctx, "A", 13)
	check("full", err, lease.ErrBacklogFull, &lease.BacklogFullError{Domain: "A", Offset: 13, MaxBacklog: 1})
	_, err = m.Succeed(ctx, "A", 0)
	check("zero token", err, lease.ErrTokenMismatch, &lease.TokenMismatchError{Domain: "A", Offset: 10})
	_, err = m.Fail(ctx, "A", done.Token)
	check("another domain's token", err, lease.ErrTokenMismatch, &lease.TokenMismatchError{Domain: "A", Offset: 10, Got: done.Token})
	_, err = m.Reclaim(ctx, "C", 0)
	check("unknown domain", err, lease.ErrLeaseNotFound, &lease.LeaseNotFoundError{Domain: "C"})
	_, err = m.Succeed(ctx, "B", done.Token)
	check("twice", err, lease.ErrLeaseNotFound,
		&lease.LeaseNotFoundError{Domain: "B", Got: done.Token, Outcome: lease.OutcomeProcessed, Offset: 12})
	check("floor", m.Compact(ctx, 4), lease.ErrFloor, &lease.FloorError{Floor: 5, Got: 4})

	// What is known already is said before the backlog is called full.
	wantStatus(t, m, "A", 10, lease.AlreadyAcquired)
	wantStatus(t, m, "A", 11, lease.Enqueued)
	wantStatus(t, m, "A", 4, lease.AlreadyProcessed)

	if got := inspect(t, m, "A"); !reflect.DeepEqual(got, a) {
		t.Errorf("A is %+v, was %+v", got, a)
	}
	if got := inspect(t, m, "B"); !reflect.DeepEqual(got, b) {
		t.Errorf("B is %+v, was %+v", got, b)
	}
	if n := m.Domains(); n != 2 {
		t.Errorf("%d domains, want 2: a question has made one", n)
	}
}

func TestInspectCopies(t *testing.T) {
	m := open(t, lease.Config{})
	acquire(t, m, "A", 1)
	wantStatus(t, m, "A", 2, lease.Enqueued)
	v := inspect(t, m, "A")
	v.Lease.Token, v.Backlog[0] = 0, 99
	if v := inspect(t, m, "A"); v.Lease.Token == 0 || v.Backlog[0] != 2 {
		t.Fatalf("the view is no copy: %+v", v)
	}
	if v := inspect(t, m, "never seen"); !reflect.DeepEqual(v, lease.View{Domain: "never seen", Floor: math.MinInt64}) {
		t.Fatalf("view %+v", v)
	}
}

func TestReadyAndHeldYieldUnderNoLock(t *testing.T) {
	m := open(t, lease.Config{})
	for i := range 300 {
		if _, err := m.Offer(ctx, fmt.Sprint("d", i), int64(i)); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for head, err := range m.Ready(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		a, err := m.AcquireNext(ctx, head.Domain)
		if err != nil || a.Status != lease.Acquired || a.Lease.Offset != head.Offset {
			t.Fatalf("%+v: %+v, %v", head, a, err)
		}
		n++
	}
	for held, err := range m.Held(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		succeed(t, m, held, lease.Completion{Status: lease.NoBacklog})
		n++
	}
	if n != 600 {
		t.Fatalf("%d turns, want 600", n)
	}
	for range m.Held(ctx) {
		t.Fatal("nothing is held any more")
	}
}

// The walk ends when the body stops it or the context ends in its midst.
func TestReadyStops(t *testing.T) {
	m := open(t, lease.Config{})
	for i := range 10 {
		if _, err := m.Offer(ctx, fmt.Sprint("d", i), 1); err != nil {
			t.Fatal(err)
		}
	}
	for range m.Ready(ctx) {
		break
	}
	canceled, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	var last error
	n := 0
	for _, last = range m.Ready(canceled) {
		n++
		cancel()
	}
	if n != 2 || !errors.Is(last, context.Canceled) {
		t.Fatalf("%d turns, then %v", n, last)
	}
}
