// SPDX-License-Identifier: Apache-2.0

// The suite on the ledger in memory, and on the one over a store: alone, and as several processes that come and go while the
// store loses their replies.

package leasetest_test

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/model"
	"github.com/stopbank/stopbank/lease/internal/step"
	"github.com/stopbank/stopbank/lease/leasetest"
)

func TestMemory(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent()) // a fault that never lets go of a lock has left its caller behind
	leasetest.Run(t, func(t testing.TB, cfg lease.Config) lease.Ledger {
		m, err := lease.NewMemory(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return m
	})
}

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
		p := &processes{t: t, store: store, cfg: cfg, ledgers: make([]lease.Ledger, 3)}
		for i := range p.ledgers {
			p.ledgers[i] = openDurable(t, store, cfg, 1)
		}
		return model.Through{Ledger: walks{p: p}, Make: p.do}
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

// processes is one ledger, of which each call goes to another process; now and then one of them is restarted.
type processes struct {
	t     testing.TB
	store durable.Store
	cfg   lease.Config

	// whole is held for writing by Compact, which every process has heard of when it ends: how soon others hear of it is no part
	// of the contract.
	whole sync.RWMutex

	mu      sync.Mutex // guards what follows
	calls   int
	ledgers []lease.Ledger
}

func (p *processes) next() lease.Ledger {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	i := p.calls % len(p.ledgers)
	if p.calls%17 == 0 {
		p.ledgers[i] = openDurable(p.t, p.store, p.cfg, 1)
	}
	return p.ledgers[i]
}

// do has one of the processes make a call.
func (p *processes) do(ctx context.Context, c model.Call) model.Reply {
	if c.Op != step.Compact {
		p.whole.RLock()
		defer p.whole.RUnlock()
		return c.Do(ctx, p.next())
	}
	p.whole.Lock()
	defer p.whole.Unlock()
	r := c.Do(ctx, p.next())
	if r.Err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, l := range p.ledgers {
			if _, err := l.Inspect(ctx, "any"); err != nil {
				r.Err = err
			}
		}
	}
	return r
}

// walks are the calls that no model.Call stands for.
type walks struct {
	lease.Ledger
	p *processes
}

func (w walks) GiveUp(ctx context.Context, domain string, token lease.Token) (lease.Failure, error) {
	w.p.whole.RLock()
	defer w.p.whole.RUnlock()
	return w.p.next().GiveUp(ctx, domain, token)
}
func (w walks) Ready(ctx context.Context) iter.Seq2[lease.Head, error] { return w.p.next().Ready(ctx) }
func (w walks) Held(ctx context.Context) iter.Seq2[lease.Lease, error] { return w.p.next().Held(ctx) }
