// SPDX-License-Identifier: Apache-2.0

package durable_test

// A ledger keeps the log that it is of (L19).

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
)

func binds(t *testing.T, l *durable.Ledger, was, is, want string) {
	t.Helper()
	if got, err := l.Bind(ctx, was, is); got != want || err != nil {
		t.Errorf("L19: Bind(%q, %q) = %q, %v; want %q", was, is, got, err, want)
	}
}

func TestLedgerIsOfOneLog(t *testing.T) {
	store := &durable.MemStore{}
	l := open(t, durable.Config{Store: store})
	binds(t, l, "", "", "")
	binds(t, l, "", "x", "x")
	binds(t, l, "", "y", "x")
	binds(t, l, "y", "z", "x")
	noError(t, l.Compact(ctx, 3))
	other := open(t, durable.Config{Store: store})
	succeed(t, other, acquire(t, other, "A", 8)) // under a number of its own
	binds(t, other, "", "", "x")
	binds(t, l, "x", "y", "y")
	if v := inspect(t, open(t, durable.Config{Store: store}), "A"); v.Floor != 3 || v.Processed != 1 {
		t.Errorf("L19: with another log the ledger is %+v", v)
	}
	b, _ := get(t, store, "")
	if got, want := hex.EncodeToString(b[:len(b)-4]), "02"+"01"+"06"+"79"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	binds(t, l, "y", "", "")
	if b, _ := get(t, store, ""); b[0] != 1 {
		t.Errorf("without a log the format is %d, which older programs do not read", b[0])
	}

	for _, err := range []error{
		func() error { _, err := l.Bind(nil, "", "x"); return err }(), //nolint:staticcheck // that is the test
		func() error { _, err := l.Bind(ctx, "", strings.Repeat("x", 1025)); return err }(),
	} {
		if !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("a bad argument: %v", err)
		}
	}
}

// Of many that bind a new ledger at once all learn the same log. Lost replies change nothing about that.
func TestBoundAtOnce(t *testing.T) {
	store := &faulty{}
	store.swap = once("", lostAfter, lostBefore, refused)
	var all sync.WaitGroup
	got := make([]string, 8)
	for i := range got {
		l := open(t, durable.Config{Store: store})
		all.Go(func() {
			for got[i] == "" {
				got[i], _ = l.Bind(ctx, "", fmt.Sprint("log ", i)) // an error: it is made again
			}
		})
	}
	all.Wait()
	for _, log := range got {
		if log != got[0] {
			t.Fatalf("L19: bound at once to %q", got)
		}
	}
}
