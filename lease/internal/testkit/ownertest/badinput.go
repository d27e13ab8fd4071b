// SPDX-License-Identifier: Apache-2.0

// A handler that never returns, and a source that returns batches out of order.

package ownertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// BadInput checks that what goes wrong outside of an engine is named, and that the other keys go on: batches in disorder are
// refused and read again, and a handler that never returns stops its key alone, until the next owner does the record under a
// greater token. Open is that of Overlap.
func BadInput(t *testing.T, open func(t testing.TB) Shared) {
	t.Helper()
	const keys, each = 4, 3
	s := open(t)
	for i := range keys * each {
		s.Append(fmt.Sprint("k", i%keys), fmt.Append(nil, i))
	}
	hangs := make(chan struct{})
	first := startBad(t, dispatch.Partition{Source: &disorderly{Source: s.First.Source, times: 3}, Ledger: s.First.Ledger},
		func(job dispatch.Job) {
			if string(job.Record.Payload) == "0" {
				<-hangs
			}
		})
	t.Cleanup(func() { close(hangs) })
	first.until(t, "the other keys are done, and the reason why one is not is told", func() bool {
		return len(first.done) == (keys-1)*each && first.refused > 0 && first.stalled == "working"
	})
	first.cancel()
	if err := within(t, "the owner ends", first.result); !errors.Is(err, dispatch.ErrDrain) ||
		!strings.Contains(err.Error(), "1 abandoned") {
		t.Errorf("the owner with the handler that never returns ended with %v, want ErrDrain with one abandoned", err)
	}
	second := startBad(t, s.Second, func(dispatch.Job) {})
	second.until(t, "the key is done", func() bool { return len(second.done) == each })
	second.cancel()
	if err := within(t, "the second owner ends", second.result); err != nil {
		t.Error(err)
	}
	if !slices.Equal(second.done, []string{"0", "4", "8"}) {
		t.Errorf("done by the second owner: %v, want the first key's, in order", second.done)
	}
	if first.token >= second.token {
		t.Errorf("token %d, and later %d", first.token, second.token)
	}
}

// disorderly returns the records of the first calls that bring several back to front.
type disorderly struct {
	dispatch.Source
	times int
}

func (s *disorderly) Fetch(ctx context.Context, from int64, limit int) ([]dispatch.Record, error) {
	records, err := s.Source.Fetch(ctx, from, limit)
	if len(records) > 1 && s.times > 0 {
		s.times--
		slices.Reverse(records)
	}
	return records, err
}

// bad is an owner, and what it was told.
type bad struct {
	cancel context.CancelFunc
	result chan error

	mu      sync.Mutex // guards all below
	done    []string
	token   lease.Token // of the first key's last attempt
	refused int         // batches
	stalled string      // the last reason
}

func startBad(t *testing.T, p dispatch.Partition, handle func(dispatch.Job)) *bad {
	t.Helper()
	b := &bad{result: make(chan error, 1)}
	d, err := dispatch.New(p, dispatch.Config{
		DeadLetter: dispatch.Discard, CommitEvery: 10 * time.Millisecond, Grace: 100 * time.Millisecond,
		Backoff: 5 * time.Millisecond, AttemptTimeout: attemptTimeout, DrainTimeout: attemptTimeout,
		Handler: func(_ context.Context, job dispatch.Job) error {
			b.mu.Lock()
			if job.Lease.Domain == "k0" {
				b.token = job.Lease.Token
			}
			b.mu.Unlock()
			handle(job)
			b.mu.Lock()
			defer b.mu.Unlock()
			b.done = append(b.done, string(job.Record.Payload))
			return nil
		},
		Observer: watching(func(e dispatch.Event) {
			b.mu.Lock()
			defer b.mu.Unlock()
			switch {
			case e.Kind == dispatch.FetchFailed && errors.Is(e.Err, lease.ErrInvalid):
				b.refused++
			case e.Kind == dispatch.Stalled:
				b.stalled = e.Reason
			}
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	go func() { b.result <- d.Run(ctx) }()
	t.Cleanup(cancel)
	return b
}

// until waits for what must come; so looks under the lock.
func (b *bad) until(t *testing.T, what string, so func() bool) {
	t.Helper()
	if !poll(func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return so()
	}) {
		t.Fatalf("not within %v: %s; done %v, %d batches refused, stalled %q", patience, what, b.done, b.refused, b.stalled)
	}
}
