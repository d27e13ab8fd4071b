// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file holds D8: a partition that is lost ends Run, whoever says so and whatever is running; all in virtual time.

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// What hangs has DrainTimeout, also where the partition is lost; then it is told of, and no floor was committed.
func TestLostWhileOneHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, release := fill("a", "a", "b"), make(chan struct{})
		r := run(t, dispatch.Partition{Ledger: memory(t, 3), Source: log}, dispatch.Config{
			DrainTimeout: time.Second, CommitEvery: time.Hour,
			Handler: func(_ context.Context, job dispatch.Job) error {
				if job.Record.Domain == "b" {
					<-release
				}
				time.Sleep(100 * time.Millisecond)
				return nil
			},
		})
		synctest.Wait()
		r.cancel(dispatch.Lost("p", errLost))
		if err := r.ended(); !errors.Is(err, dispatch.ErrLost) || !errors.Is(err, errLost) || !errors.Is(err, dispatch.ErrDrain) ||
			!strings.Contains(err.Error(), "1 abandoned") {
			t.Errorf("D8: Run: %v", err)
		}
		same(t, "a", r.of("a"), 0)
		if floor, _ := log.Committed(t.Context()); floor != 0 || len(r.seen.of(dispatch.Committed)) > 0 {
			t.Errorf("D8: committed %d", floor)
		}
		close(release)
		time.Sleep(time.Second)
	})
}

// Before the partition is taken, too; and a drain whose last commit is refused says the same.
func TestLostAtBothEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(memory(t, 3), fill("a"))
		r := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{})
		r.cancel(dispatch.Lost("p", errLost))
		if err := r.ended(); !errors.Is(err, dispatch.ErrLost) || len(r.of("a")) > 0 {
			t.Errorf("D8: Run of a partition that is lost already: %v", err)
		}
		p.fails(dispatch.Lost("p", nil), "Commit")
		r = run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{CommitEvery: time.Hour})
		synctest.Wait()
		if err := r.stop(); !errors.Is(err, dispatch.ErrLost) || errors.Is(err, dispatch.ErrDrain) {
			t.Errorf("D8: a drain whose commit is refused: %v", err)
		}
	})
}

// Whoever cannot tell whether its last call got him a lease asks the source before he takes one: it may be that of the
// partition's new owner, who would be fenced out of his own domain and leave it alone.
func TestUnsureTakesNothingFromTheNewOwner(t *testing.T) {
	for _, call := range []string{"TryAcquire", "Reclaim"} {
		bubble(t, call, func(t *testing.T) {
			ledger, log := memory(t, 5), fill("k", "k")
			p := newProcess(ledger, log)
			if call == "TryAcquire" {
				p.fails(errLost, call)
			}
			old := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{
				CommitEvery: time.Hour,
				Handler:     func(context.Context, dispatch.Job) error { p.fails(errLost, call); return errLost },
			})
			time.Sleep(5 * time.Second)
			p.fails(dispatch.Lost("p", errLost), "Commit") // and the ledger can be reached again
			young := run(t, dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{Handler: taking(time.Minute)})
			time.Sleep(10 * time.Minute)
			if err := old.ended(); !errors.Is(err, dispatch.ErrLost) {
				t.Errorf("D8: the old owner: %v", err)
			}
			young.mustStop(t)
			equal(t, "D8: the new owner was fenced out", len(young.seen.of(dispatch.Fenced)), 0)
			equal(t, "floor", young.Stats().Floor, 2)
		})
	}
}
