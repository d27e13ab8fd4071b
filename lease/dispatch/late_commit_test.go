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

// A commit that has begun ends before the drain sends its own. It has DrainTimeout; then it is cancelled, and the drain sends its
// own when it has returned. A commit for a partition that is lost is cancelled at once, and none follows.
func TestDrainOvertakesNoCommit(t *testing.T) {
	for name, c := range map[string]struct {
		takes, back time.Duration
		lost        error
		took        time.Duration // five seconds until the first one ends, or ten; and one for the other
		commits     []int64       // out of order: it is the source's to put that right
	}{
		"in time":  {takes: 6 * time.Second, took: 6 * time.Second, commits: []int64{1, 2}},
		"it hangs": {takes: 30 * time.Second, back: 2 * time.Second, took: 13 * time.Second, commits: []int64{2, 1}},
		"lost":     {takes: 30 * time.Second, lost: dispatch.Lost("p", errDead), commits: []int64{1}},
	} {
		bubble(t, name, func(t *testing.T) {
			source := &distant{Log: fill("a", "b"), takes: c.takes, back: c.back}
			r := run(t, dispatch.Partition{Ledger: memory(t, 0), Source: source}, dispatch.Config{
				MaxInFlight: 2, CommitEvery: time.Second, DrainTimeout: 10 * time.Second,
				Handler: func(_ context.Context, job dispatch.Job) error {
					time.Sleep(time.Duration(job.Record.Offset) * 1500 * time.Millisecond)
					return nil
				},
			})
			time.Sleep(2 * time.Second) // the commit of floor 1 is on its way, and record 1 is done too
			equal(t, "floor", r.Stats().Floor, 2)
			equal(t, "commits sent", source.sentSoFar(), 1)
			began := time.Now()
			r.cancel(c.lost)
			err := <-r.result
			equal(t, "D4: took", time.Since(began), c.took)
			if c.lost == nil && err != nil || c.lost != nil && !errors.Is(err, dispatch.ErrLost) {
				t.Errorf("D8: Run returned %v", err)
			}
			time.Sleep(time.Minute) // for what the server does late
			source.mu.Lock()
			defer source.mu.Unlock()
			equal(t, "D4: two commits at once", source.together, false)
			same(t, "D4: carried out", source.commits, c.commits...)
		})
	}
}

// A domain asks by a commit whether the partition is still its own, and gets no answer. The drain does not wait for it for ever.
func TestDrainEndsAQuestionThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, lost := newProcess(memory(t, 1), nil), false
		p.fault = func(call, domain string) (before, after error) {
			if call == "TryAcquire" && domain == "b" && !lost {
				lost = true
				return nil, errLost // it was carried out: the lease is ours, or the next owner's
			}
			return nil, nil
		}
		source := &distant{Log: fill("a", "b"), takes: time.Hour}
		p.Source = source
		r := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{CommitEvery: 10 * time.Second, DrainTimeout: 10 * time.Second})
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
