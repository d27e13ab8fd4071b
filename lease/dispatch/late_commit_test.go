// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file holds D4 and D8 where a drain finds a commit on its way: what a server carries out although nobody waits for it any
// more.

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// distant is a source whose server takes its time for the first commit that moves the floor, and carries it out even when the
// caller has gone.
type distant struct {
	*dispatch.Log
	takes time.Duration // the first one; the others take a second
	back  time.Duration // what a caller takes to come back when its context has ended

	mu       sync.Mutex // guards all below
	commits  []int64    // in the order in which the server carried them out
	sent     int
	inside   int
	together bool // two were called at once
}

func (d *distant) Commit(ctx context.Context, floor int64) error {
	d.mu.Lock()
	if d.inside++; d.inside > 1 {
		d.together = true
	}
	d.sent++
	takes := time.Second
	if d.sent == 1 {
		takes = d.takes
	}
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.inside--
	}()
	carriedOut := make(chan error, 1)
	go func() {
		time.Sleep(takes)
		d.mu.Lock()
		d.commits = append(d.commits, floor)
		d.mu.Unlock()
		carriedOut <- d.Log.Commit(context.WithoutCancel(ctx), floor)
	}()
	select {
	case err := <-carriedOut:
		return err
	case <-ctx.Done():
		time.Sleep(d.back)
		return ctx.Err()
	}
}

func (d *distant) sentSoFar() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sent
}

// drained runs until the commit of floor 1 is on its way and record 1 is done too, drains, and returns how long that took.
func drained(t *testing.T, source *distant, stop func(*running) error) (took time.Duration, err error) {
	t.Helper()
	r := run(t, dispatch.Partition{Ledger: memory(t, 0), Source: source}, dispatch.Config{
		MaxInFlight: 2, CommitEvery: time.Second, DrainTimeout: 10 * time.Second,
		Handler: func(_ context.Context, job dispatch.Job) error {
			time.Sleep(time.Duration(job.Record.Offset) * 1500 * time.Millisecond)
			return nil
		},
	})
	time.Sleep(2 * time.Second)
	equal(t, "floor", r.Stats().Floor, 2)
	equal(t, "commits sent", source.sentSoFar(), 1)
	began := time.Now()
	err = stop(r)
	took = time.Since(began)
	time.Sleep(time.Minute) // for what the server does late
	source.mu.Lock()
	defer source.mu.Unlock()
	if source.together {
		t.Error("D4: two commits at once")
	}
	return took, err
}

// A commit that has begun ends before the drain sends its own.
func TestDrainOvertakesNoCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &distant{Log: fill("a", "b"), takes: 6 * time.Second}
		took, err := drained(t, source, (*running).stop)
		if err != nil {
			t.Errorf("D4: drain: %v", err)
		}
		same(t, "D4: carried out", source.commits, 1, 2)
		equal(t, "took", took, 6*time.Second) // five until the first one ends, and one for the other
	})
}

// It has DrainTimeout. Then it is cancelled, and the drain sends its own when it has returned.
func TestDrainCancelsACommitThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &distant{Log: fill("a", "b"), takes: 30 * time.Second, back: 2 * time.Second}
		took, err := drained(t, source, (*running).stop)
		if err != nil {
			t.Errorf("D4: drain: %v", err)
		}
		equal(t, "took", took, 13*time.Second)
		same(t, "carried out", source.commits, 2, 1) // which is the source's to put right
	})
}

// A commit for a partition that is lost is cancelled at once, and none follows.
func TestLossCancelsTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &distant{Log: fill("a", "b"), takes: 30 * time.Second}
		took, err := drained(t, source, func(r *running) error {
			r.cancel(dispatch.Lost("p", errors.New("somebody else's")))
			return <-r.result
		})
		if !errors.Is(err, dispatch.ErrLost) {
			t.Errorf("D8: Run returned %v", err)
		}
		equal(t, "took", took, 0)
		equal(t, "D8: commits sent", source.sentSoFar(), 1)
	})
}

// A domain asks by a commit whether the partition is still its own, and gets no answer. The drain does not wait for it for ever.
func TestDrainEndsAQuestionThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, lost := &process{Ledger: memory(t, 1)}, false
		p.fault = func(call, domain string) (before, after error) {
			if call == "TryAcquire" && domain == "b" && !lost {
				lost = true
				return nil, errLost // it was carried out: the lease is ours, or the next owner's
			}
			return nil, nil
		}
		source := &distant{Log: fill("a", "b"), takes: time.Hour}
		p.Source = source
		r := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{
			CommitEvery: 10 * time.Second, DrainTimeout: 10 * time.Second,
			Handler: func(context.Context, dispatch.Job) error { return nil },
		})
		time.Sleep(5 * time.Second)
		equal(t, "commits sent", source.sentSoFar(), 1)
		equal(t, "floor", r.Stats().Floor, 1)
		began := time.Now()
		r.mustStop(t)
		equal(t, "D4: took", time.Since(began), 11*time.Second)
		equal(t, "committed", r.Stats().Committed, 1)
		time.Sleep(time.Hour)
	})
}
