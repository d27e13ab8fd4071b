// SPDX-License-Identifier: Apache-2.0

package durable_test

// The ledger's own record taken away, or an earlier one put back: numbers would then be given out twice.

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
)

// worked is a store in which that many Ledgers have worked: the last of them holds "held", and "idle" and "ready" are what
// they say.
func worked(t *testing.T, writers int) (*durable.MemStore, *durable.Ledger, lease.Lease) {
	t.Helper()
	store := &durable.MemStore{}
	var last *durable.Ledger
	for offset := range int64(writers) {
		last = open(t, durable.Config{Store: store})
		succeed(t, last, acquire(t, last, "idle", offset))
		must(last.Offer(ctx, "ready", offset))(t)
	}
	return store, last, acquire(t, last, "held", 1)
}

// forgot fails if err is not the one of a root that was tampered with.
func forgot(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, durable.ErrStore) || !strings.Contains(err.Error(), `Load of ""`) || errors.Is(err, durable.ErrAmbiguous) {
		t.Errorf("%s: %v", what, err)
	}
}

func TestRootIsGone(t *testing.T) {
	earlier := durable.RootOf(2, 0)
	for name, root := range map[string][]byte{"deleted": nil, "put back": earlier} {
		t.Run(name, func(t *testing.T) {
			store, last, held := worked(t, 3)
			full, _, err := store.Load(ctx, "")
			if err != nil {
				t.Fatal(err)
			}
			store.Tamper("", root)
			l := open(t, durable.Config{Store: store})
			for _, domain := range []string{"idle", "ready", "held"} {
				_, err = l.TryAcquire(ctx, domain, 0)
				forgot(t, "TryAcquire in "+domain, err)
			}
			_, err = l.Reclaim(ctx, "held", held.Token)
			forgot(t, "Reclaim", err)
			_, err = l.Inspect(ctx, "held")
			forgot(t, "Inspect", err)
			err = nil
			for _, err = range l.Held(ctx) {
			}
			forgot(t, "Held", err)
			err = nil
			for _, err = range l.Ready(ctx) {
			}
			forgot(t, "Ready", err)
			if now, _, _ := store.Load(ctx, ""); !bytes.Equal(now, root) {
				t.Error("L9: the root was written again")
			}
			succeed(t, last, held) // whoever has a number of his own may go on

			store.Tamper("", full)
			if a, err := l.AcquireNext(ctx, "ready"); err != nil || a.Status != lease.Acquired {
				t.Errorf("L9: after the root was put back: %+v, %v", a, err)
			}
			if heir := acquire(t, l, "held", 2); heir.Token <= held.Token {
				t.Errorf("L9: token %d after %d", heir.Token, held.Token)
			}
		})
	}
}

// A root that was begun anew, because the first call met a domain without a record, gives numbers out again. Their new owner
// notices by the marks of the one before.
func TestNumberOfAnother(t *testing.T) {
	store, _, held := worked(t, 1)
	store.Tamper("", nil)
	l := open(t, durable.Config{Store: store})
	succeed(t, l, acquire(t, l, "new", 1))
	_, err := l.Succeed(ctx, "held", held.Token)
	forgot(t, "Succeed", err)
	succeed(t, l, acquire(t, l, "new", 2))
}
