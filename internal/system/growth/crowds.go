// SPDX-License-Identifier: Apache-2.0

// Crowds: tasks that wait in a queue, and keys that wait in a dispatcher, while others come and go.

package main

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
)

// A room is one slot, which is taken, and its queue.
type room struct {
	enter   func(ctx context.Context) (release func(), err error)
	queued  func() int
	granted chan func() // releases the slot, from the task that has it
	n       int         // tasks that wait
}

// limited returns the slot of a limiter. Who leaves its queue after more than burst shows how patient clients are.
func limited(n int, burst time.Duration) room {
	now := decision.ControlDecision{Seq: 1, TargetConcurrency: 1, Burst: burst, MaxWait: time.Hour}
	l := must(limiter.New(limiter.Config{MaxQueue: n + 2, Initial: now}))
	return room{
		enter: func(ctx context.Context) (func(), error) {
			p, err := l.Acquire(ctx, limiter.Task{})
			return func() { p.Release() }, err
		},
		queued: func() int { return l.Stats().Queued },
	}
}

// compartment returns the slot of a compartment, for which each caller waits as another one of n tenants, if it has tenants.
func compartment(n int, tenants bulkhead.TenantsConfig) room {
	set := must(bulkhead.New(bulkhead.Config{Total: 1, Compartments: []bulkhead.CompartmentConfig{
		{Name: "c", Guaranteed: 1, MaxQueue: n + 2, Tenants: tenants},
	}}))
	c, calls := set.Compartment("c"), new(atomic.Int64)
	return room{
		enter: func(ctx context.Context) (func(), error) {
			caller := c
			if tenants.Max > 0 {
				caller = c.Tenant(strconv.FormatInt(calls.Add(1)%int64(n+2), 10))
			}
			_, p, err := caller.Acquire(ctx)
			return func() { p.Release(nil) }, err
		},
		queued: func() int { return c.Snapshot().Queued },
	}
}

// crowded takes the slot of r, and has n tasks wait until ctx is done.
func crowded(ctx context.Context, r room, n int) room {
	r.n, r.granted = n, make(chan func(), 1)
	r.granted <- must(r.enter(context.Background()))
	for range n {
		go r.wait(ctx)
	}
	until(func() bool { return r.queued() == n })
	return r
}

func (r room) wait(ctx context.Context) {
	if release, err := r.enter(ctx); err == nil {
		r.granted <- release
	}
}

// visit enters the queue, behind n tasks, and leaves it.
func (r room) visit() {
	c := &visitor{Context: context.Background(), waits: func() bool { return r.queued() > r.n }}
	if _, err := r.enter(c); err == nil {
		panic("a task got the slot that is taken")
	}
}

// turn passes the slot on; the next task takes the place of the one that got it.
func (r room) turn(ctx context.Context) {
	(<-r.granted)()
	go r.wait(ctx)
}

// A visitor is a context that ends as soon as its task waits.
type visitor struct {
	context.Context
	waits func() bool
}

func (v *visitor) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done) // Err says whether that is true
	return done
}

func (v *visitor) Err() error {
	if v.waits() {
		return context.Canceled
	}
	return nil
}

// A consumer is a dispatcher with n keys that wait for a retry, and one that is worked on.
type consumer struct {
	*dispatch.Dispatcher
	log   *dispatch.Log
	ended chan struct{}
}

func dispatched(ctx context.Context, n int) consumer {
	c := consumer{log: new(dispatch.Log), ended: make(chan struct{})}
	for i := range n {
		c.log.Append("k"+strconv.Itoa(i), nil)
	}
	ledger := must(lease.NewMemory(lease.Config{MaxRetries: 1}))
	c.Dispatcher = must(dispatch.New(dispatch.Partition{Ledger: ledger, Source: c.log}, dispatch.Config{
		MaxBuffered: n + 1, Observer: c, DeadLetter: dispatch.Discard,
		Backoff: time.Hour, MaxBackoff: time.Hour, CommitEvery: time.Hour,
		Handler: func(_ context.Context, job dispatch.Job) error {
			if job.Record.Domain != live {
				return errors.New("not now")
			}
			return nil
		},
	}))
	go func() { must(0, c.Run(ctx)) }()
	until(func() bool { return c.Stats().Pausing == n })
	return c
}

// Observe implements dispatch.Observer.
func (c consumer) Observe(e dispatch.Event) {
	if e.Kind == dispatch.Succeeded {
		c.ended <- struct{}{}
	}
}

// work has one record more worked on.
func (c consumer) work() {
	c.log.Append(live, nil)
	<-c.ended
}
