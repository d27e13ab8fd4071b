// SPDX-License-Identifier: Apache-2.0

// What a ledger refuses: with which error, and without a change.

package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stopbank/stopbank/lease"
	machine "github.com/stopbank/stopbank/lease/internal/step"
)

func TestConfigIsValidated(t *testing.T) {
	tooMany := math.MaxInt32
	tooMany++ // where an int has 32 bits this is negative, and refused as well
	for _, c := range []struct {
		cfg   lease.Config
		field string
	}{
		{lease.Config{MaxRetries: -1}, "Config.MaxRetries"},
		{lease.Config{MaxRetries: math.MinInt}, "Config.MaxRetries"},
		{lease.Config{MaxRetries: tooMany}, "Config.MaxRetries"},
		{lease.Config{MaxBacklog: -1}, "Config.MaxBacklog"},
		{lease.Config{Observer: observer(nil)}, "Config.Observer"},
	} {
		m, err := lease.NewMemory(c.cfg)
		var invalid *lease.InvalidError
		if m != nil || !errors.As(err, &invalid) || invalid.Field != c.field || !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%+v: %v, %v", c.cfg, m, err)
		}
	}
}

// MaxRetries is the number of retries and nothing else: the Fail that finds so many gives the offset up, the first one if it
// is 0.
func TestMaxRetriesZeroIsNone(t *testing.T) {
	for _, want := range []int{0, 1, lease.DefaultRetries} {
		m, err := lease.NewMemory(lease.Config{MaxRetries: want})
		if err != nil {
			t.Fatal(err)
		}
		held, retries := acquire(t, m, "A", 1), 0
		for f := (lease.Failure{Status: lease.RetryScheduled}); f.Status == lease.RetryScheduled; retries++ {
			if f, err = m.Fail(ctx, "A", held.Token); err != nil {
				t.Fatal(err)
			}
		}
		if retries != want+1 {
			t.Errorf("L7: MaxRetries %d: given up by Fail %d", want, retries)
		}
	}
}

// GiveUp ends a lease whose retries are not behind it, and nobody else's.
func TestGiveUpIsTheLastFail(t *testing.T) {
	m := open(t, lease.Config{MaxRetries: 5})
	held := acquire(t, m, "A", 1)
	if _, err := m.GiveUp(ctx, "A", held.Token+1); !errors.Is(err, lease.ErrTokenMismatch) {
		t.Errorf("L7: another's: %v", err)
	}
	if f, err := m.GiveUp(ctx, "A", held.Token); err != nil || f != (lease.Failure{Status: lease.GiveUpNoBacklog}) {
		t.Errorf("L7: GiveUp = %+v, %v", f, err)
	}
	wantStatus(t, m, "A", 1, lease.AlreadyFailed)
}

// Every error has a type with fields under a sentinel, and leaves the ledger alone.
func TestBadInput(t *testing.T) {
	m := open(t, lease.Config{MaxBacklog: 1})
	held := acquire(t, m, "A", 10)
	wantStatus(t, m, "A", 11, lease.Enqueued)
	done := acquire(t, m, "B", 12)
	succeed(t, m, done, lease.Completion{Status: lease.NoBacklog})
	noError(t, m.Compact(ctx, 5))
	a, b := inspect(t, m, "A"), inspect(t, m, "B")
	dead, cancel := context.WithCancel(ctx)
	cancel()
	calls := map[string]func(context.Context, string) error{
		"TryAcquire":  func(ctx context.Context, d string) error { _, err := m.TryAcquire(ctx, d, 12); return err },
		"Offer":       func(ctx context.Context, d string) error { _, err := m.Offer(ctx, d, 12); return err },
		"AcquireNext": func(ctx context.Context, d string) error { _, err := m.AcquireNext(ctx, d); return err },
		"Succeed":     func(ctx context.Context, d string) error { _, err := m.Succeed(ctx, d, held.Token); return err },
		"Fail":        func(ctx context.Context, d string) error { _, err := m.Fail(ctx, d, held.Token); return err },
		"GiveUp":      func(ctx context.Context, d string) error { _, err := m.GiveUp(ctx, d, held.Token); return err },
		"Reclaim":     func(ctx context.Context, d string) error { _, err := m.Reclaim(ctx, d, held.Token); return err },
		"Release":     func(ctx context.Context, d string) error { return m.Release(ctx, d, held.Token) },
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
		if diff := cmp.Diff(want, err); diff != "" || !errors.Is(err, sentinel) {
			t.Errorf("%s: %v is %v: %v (-want +got):\n%s", what, err, sentinel, errors.Is(err, sentinel), diff)
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
	check("another domain's token", err, lease.ErrTokenMismatch,
		&lease.TokenMismatchError{Domain: "A", Offset: 10, Got: done.Token})
	_, err = m.Reclaim(ctx, "C", 0)
	check("unknown domain", err, lease.ErrLeaseNotFound, &lease.LeaseNotFoundError{Domain: "C"})
	_, err = m.Succeed(ctx, "B", done.Token)
	check("twice", err, lease.ErrLeaseNotFound,
		&lease.LeaseNotFoundError{Domain: "B", Got: done.Token, Status: lease.AlreadyProcessed, Offset: 12})
	check("floor", m.Compact(ctx, 4), lease.ErrFloor, &machine.FloorError{Floor: 5, Got: 4})

	// What is known already is said before the backlog is called full.
	wantStatus(t, m, "A", 10, lease.AlreadyAcquired)
	wantStatus(t, m, "A", 11, lease.Enqueued)
	wantStatus(t, m, "A", 4, lease.AlreadyProcessed)

	if diff := cmp.Diff(a, inspect(t, m, "A")); diff != "" {
		t.Errorf("A (-was +is):\n%s", diff)
	}
	if diff := cmp.Diff(b, inspect(t, m, "B")); diff != "" {
		t.Errorf("B (-was +is):\n%s", diff)
	}
	if n := m.Domains(); n != 2 {
		t.Errorf("%d domains, want 2: a question has made one", n)
	}
}

// Whatever the call, an error leaves every domain as it was.
func TestPropertyErrorsChangeNothing(t *testing.T) {
	play(t, func(h *history) func(step) error {
		all := func() (views []lease.View) {
			for _, name := range h.names {
				views = append(views, inspect(t, h.ledger, name))
			}
			return views
		}
		was, records := all(), h.ledger.Domains()
		return func(s step) error {
			now, left := all(), h.ledger.Domains()
			if s.reply.Err != nil && !(cmp.Equal(was, now) && records == left) {
				return fmt.Errorf("and yet %d domains became %d (-was +is):\n%s", records, left, cmp.Diff(was, now))
			}
			was, records = now, left
			return nil
		}
	})
}
