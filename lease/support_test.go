// SPDX-License-Identifier: Apache-2.0

// A ledger opened for a test, and calls whose answers the test knows.

package lease_test

import (
	"context"

	"github.com/stopbank/stopbank/lease"
)

var ctx = context.Background()

// tb is what the helpers need of a *testing.T or a *rapid.T. They call Helper only when something is wrong: it takes longer than
// a call of the ledger.
type tb interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func open(t tb, cfg lease.Config) *lease.Memory {
	m, err := lease.OpenMemory(cfg)
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
	return m
}

func acquire(t tb, l lease.Ledger, domain string, offset int64) lease.Lease {
	a, err := l.TryAcquire(ctx, domain, offset)
	if err != nil || a.Status != lease.Acquired {
		t.Helper()
		t.Fatalf("TryAcquire(%s, %d) = %v, %v, want ACQUIRED", domain, offset, a.Status, err)
	}
	return a.Lease
}

func wantStatus(t tb, l lease.Ledger, domain string, offset int64, want lease.Status) lease.Acquisition {
	a, err := l.TryAcquire(ctx, domain, offset)
	if err != nil || a.Status != want {
		t.Helper()
		t.Fatalf("TryAcquire(%s, %d) = %v, %v, want %v", domain, offset, a.Status, err, want)
	}
	return a
}

func succeed(t tb, l lease.Ledger, held lease.Lease, want lease.Completion) {
	if got, err := l.Succeed(ctx, held.Domain, held.Token); err != nil || got != want {
		t.Helper()
		t.Fatalf("Succeed = %+v, %v, want %+v", got, err, want)
	}
}

func fail(t tb, l lease.Ledger, held lease.Lease, want lease.Failure) {
	if got, err := l.Fail(ctx, held.Domain, held.Token); err != nil || got != want {
		t.Helper()
		t.Fatalf("Fail = %+v, %v, want %+v", got, err, want)
	}
}

func inspect(t tb, l lease.Ledger, domain string) lease.View {
	v, err := l.Inspect(ctx, domain)
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
	return v
}

// must is for what cannot fail here: x := must(f())(t).
func must[T any](v T, err error) func(fataler) T {
	return func(t fataler) T {
		t.Helper()
		noError(t, err)
		return v
	}
}

func noError(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type fataler interface {
	Helper()
	Fatal(args ...any)
}
