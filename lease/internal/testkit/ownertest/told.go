// SPDX-License-Identifier: Apache-2.0

// A Consumer at work, and what it was told.

package ownertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// told is a Consumer in its Run.
type told struct {
	*dispatch.Consumer
	t      testing.TB
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // of Run, once ended

	mu      sync.Mutex // guards all below
	handled []string   // payloads, in the order in which handlers returned
	tokens  map[string]lease.Token
	events  map[string]int  // by kind and reason
	over    map[string]bool // partitions and offsets of records that are done
	last    error           // of an event
}

// follow starts a Consumer. handle runs in every attempt; change may change the Config first. Nil: nothing.
func follow(t testing.TB, o dispatch.Ownership, handle func(dispatch.Job), change func(*dispatch.Config)) *told {
	t.Helper()
	x := &told{t: t, ended: make(chan struct{}), tokens: map[string]lease.Token{}, events: map[string]int{}, over: map[string]bool{}}
	cfg := dispatch.Config{
		DeadLetter: dispatch.Discard, CommitEvery: 10 * time.Millisecond, Grace: 100 * time.Millisecond,
		Backoff: 5 * time.Millisecond, Observer: watching(x.observe),
		Handler: func(_ context.Context, job dispatch.Job) error {
			x.mu.Lock()
			x.tokens[job.Lease.Domain] = job.Lease.Token
			x.mu.Unlock()
			if handle != nil {
				handle(job)
			}
			x.mu.Lock()
			defer x.mu.Unlock()
			x.handled = append(x.handled, string(job.Record.Payload))
			return nil
		},
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if x.Consumer, err = dispatch.NewConsumer(o, cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	x.cancel = cancel
	go func() {
		defer close(x.ended)
		x.err = x.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		x.ends()
	})
	return x
}

func (x *told) observe(e dispatch.Event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.events[strings.TrimSpace(string(e.Kind)+" "+e.Reason)]++
	if e.Err != nil {
		x.last = e.Err
	}
	switch e.Kind {
	case dispatch.Succeeded, dispatch.Skipped:
		x.over[fmt.Sprint(e.Name, " ", e.Offset)] = true
	case dispatch.Stalled:
		if e.Reason == "rewound" && !errors.Is(e.Err, dispatch.ErrRewound) {
			x.t.Errorf("D13: rewound because of %v", e.Err)
		}
	default:
	}
}

// count is how often records whose payloads begin so were handled, and how many of them. It needs the lock, as until's so does.
func (x *told) count(what string) (times, records int) {
	seen := map[string]bool{}
	for _, payload := range x.handled {
		if strings.HasPrefix(payload, what) {
			times++
			seen[payload] = true
		}
	}
	return times, len(seen)
}

// until waits for what must come; so looks under the lock.
func (x *told) until(what string, so func() bool) {
	x.t.Helper()
	if !poll(func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return so()
	}) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.t.Fatalf("not within %v: %s; handled %q; events %v; last error %v; %+v", patience, what, x.handled, x.events, x.last, x.Stats())
	}
}

// ends waits for the end of Run, and returns its error.
func (x *told) ends() error {
	x.t.Helper()
	within(x.t, "the end of Run", x.ended)
	return x.err
}

// within receives what must come.
func within[T any](t testing.TB, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
	return v
}

type watching func(dispatch.Event)

func (w watching) Observe(e dispatch.Event) { w(e) }
