// SPDX-License-Identifier: Apache-2.0

// Two owners of one partition that overlap, each at a point where it does not know of the other.

package ownertest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// Shared is a partition that two owners have opened: the same log and the same durable ledger.
type Shared struct {
	First, Second dispatch.Partition
	// Append writes a record to the log.
	Append func(domain string, payload []byte)
}

// Overlap checks a Source that rejects the commits of the owner whose Committed was called first (D8): a former owner that
// stood still ends and takes nothing from the later one, and an owner whose leases somebody else reclaimed goes on. Open
// opens another partition, without records, each time; its ledgers must allow a hundred retries.
func Overlap(t *testing.T, open func(t testing.TB) Shared) {
	t.Helper()
	for name, lists := range map[string]bool{"StoodStillWhileTaking": true, "StoodStillBeforeReading": false} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			first := &still{Ledger: s.First.Ledger, Source: s.First.Source, lists: lists, here: make(chan struct{}),
				on: make(chan struct{})}
			a := overlapping(t, s, dispatch.Partition{Source: first, Ledger: first})
			<-first.here
			b := overlapping(t, s, s.Second)
			b.atWork(t)
			close(first.on)
			a.losesTo(t, b)
		})
	}
	t.Run("SomebodyElseReclaims", func(t *testing.T) {
		s := open(t)
		a := overlapping(t, s, s.First)
		a.atWork(t)
		for l, err := range s.Second.Ledger.Held(t.Context()) {
			if err == nil {
				l, err = s.Second.Ledger.Reclaim(t.Context(), l.Domain, l.Token)
			}
			if err == nil && l.Offset%2 == 0 { // every second one dies with it
				err = s.Second.Ledger.Release(t.Context(), l.Domain, l.Token)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		a.finishes(t)
		if n := a.fenced.Load(); n != overlapKeys {
			t.Errorf("D8: fenced out of %d keys, want %d", n, overlapKeys)
		}
	})
}

const (
	overlapKeys    = 4
	overlapRecords = 10 * overlapKeys
)

// still is an owner's ledger and source: it stands still where the leases are listed, or where the first record is read.
type still struct {
	lease.Ledger
	dispatch.Source
	lists    bool
	once     sync.Once
	here, on chan struct{}
}

func (s *still) stand() {
	s.once.Do(func() {
		close(s.here)
		<-s.on
	})
}

func (s *still) Held(ctx context.Context) iter.Seq2[lease.Lease, error] {
	if s.lists {
		s.stand()
	}
	return s.Ledger.Held(ctx)
}

func (s *still) Fetch(ctx context.Context, from int64, limit int) ([]dispatch.Record, error) {
	if !s.lists {
		s.stand()
	}
	return s.Source.Fetch(ctx, from, limit)
}

// overlapped is an owner in its Run.
type overlapped struct {
	working, release chan struct{} // a handler began; handlers may return
	done             chan struct{} // closed when all records are
	fenced           atomic.Int64
	result           chan error
	append           func()
	cancel           context.CancelFunc
}

// overlapping begins to work on p. Handlers wait for release.
func overlapping(t *testing.T, s Shared, p dispatch.Partition) *overlapped {
	t.Helper()
	o := &overlapped{working: make(chan struct{}, overlapRecords), release: make(chan struct{}), done: make(chan struct{}),
		result: make(chan error, 1)}
	o.append = func() {
		for i := range overlapRecords {
			s.Append(fmt.Sprint("k", i%overlapKeys), nil)
		}
	}
	var mu sync.Mutex // guards done
	done := map[int64]bool{}
	d, err := dispatch.New(p, dispatch.Config{
		DeadLetter: dispatch.Discard, CommitEvery: 10 * time.Millisecond, Grace: 100 * time.Millisecond, Backoff: 5 * time.Millisecond,
		Handler: func(context.Context, dispatch.Job) error {
			o.working <- struct{}{}
			<-o.release
			return nil
		},
		Observer: watching(func(e dispatch.Event) {
			mu.Lock()
			defer mu.Unlock()
			switch e.Kind {
			case dispatch.Fenced:
				o.fenced.Add(1)
			case dispatch.Succeeded, dispatch.Skipped:
				if done[e.Offset] = true; len(done) == overlapRecords {
					close(o.done)
				}
			default:
			}
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	o.cancel = cancel
	go func() { o.result <- d.Run(ctx) }()
	t.Cleanup(cancel)
	return o
}

// atWork writes the records, and waits until one of each key is worked on.
func (o *overlapped) atWork(t *testing.T) {
	t.Helper()
	o.append()
	for range overlapKeys {
		within(t, "the owner begins", o.working)
	}
}

// losesTo: o hears that it has lost the partition, and b, which knows nothing of it, does everything.
func (o *overlapped) losesTo(t *testing.T, b *overlapped) {
	t.Helper()
	close(o.release)
	if err := within(t, "the former owner ends", o.result); !errors.Is(err, dispatch.ErrLost) {
		t.Errorf("D8: the former owner ended with %v", err)
	}
	b.finishes(t)
	if n := b.fenced.Load(); n > 0 {
		t.Errorf("D8: the owner was fenced out of %d keys", n)
	}
}

// finishes: all records are done by o.
func (o *overlapped) finishes(t *testing.T) {
	t.Helper()
	close(o.release)
	within(t, "all records are done", o.done)
	o.cancel()
	if err := within(t, "the drain", o.result); err != nil {
		t.Errorf("the drain: %v", err)
	}
}

// within receives what must come.
func within[T any](t *testing.T, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatalf("D8: not within %v: %s", patience, what)
	}
	return v
}

type watching func(dispatch.Event)

func (w watching) Observe(e dispatch.Event) { w(e) }
