// SPDX-License-Identifier: Apache-2.0

// The suite on the ledger over a store (that in memory runs it in package lease): alone, and as several processes that come and go while the
// store loses their replies.

package leasetest_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/model"
	"github.com/stopbank/stopbank/lease/leasetest"
)

func openDurable(t testing.TB, store durable.Store, cfg lease.Config, cached int) lease.Ledger {
	l, err := durable.New(durable.Config{
		Store: store, MaxRetries: cfg.MaxRetries, MaxBacklog: cfg.MaxBacklog, Observer: cfg.Observer, MaxCached: cached,
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestDurable(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	leasetest.Run(t, func(t testing.TB, cfg lease.Config) lease.Ledger {
		return openDurable(t, durable.NewMemStore(), cfg, 2)
	})
}

func TestDurableProcessesThatLoseReplies(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	lost := 0
	leasetest.Run(t, func(t testing.TB, cfg lease.Config) lease.Ledger {
		store := &deaf{Store: durable.NewMemStore(), rnd: rand.New(rand.NewPCG(7, 7))}
		t.Cleanup(func() { lost += store.lost })
		return model.Several(func() lease.Ledger { return openDurable(t, store, cfg, 1) })
	})
	t.Logf("%d replies lost", lost)
	if lost == 0 {
		t.Error("no reply was lost")
	}
}

// deaf loses one reply in eight of those to a Swap: half of them after it was applied, half of them with the Swap itself.
type deaf struct {
	durable.Store
	mu   sync.Mutex // guards what follows
	rnd  *rand.Rand
	lost int
}

func (d *deaf) Swap(ctx context.Context, name string, old uint64, state []byte, index durable.Index) (uint64, error) {
	d.mu.Lock()
	lose := d.rnd.IntN(16)
	if lose < 2 {
		d.lost++
	}
	d.mu.Unlock()
	if lose == 0 {
		return 0, errors.New("lost")
	}
	version, err := d.Store.Swap(ctx, name, old, state, index)
	if lose == 1 {
		return 0, errors.New("the reply is lost")
	}
	return version, err
}
