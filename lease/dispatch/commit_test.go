// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file holds D2: the floor passes what is done, and what was given up only when its dead letter has been accepted; all in
// virtual time.

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// A commit that is refused is not compacted either.
func TestRefusedCommitCompactsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(memory(t, 0), fill("a", "b"))
		p.fails(errLost, "Commit")
		r := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{})
		time.Sleep(time.Minute)
		v, _ := p.Ledger.Inspect(context.Background(), "a")
		if v.Floor >= 0 || v.Processed != 1 {
			t.Errorf("D2: compacted: %+v", v)
		}
		equal(t, "floor", r.Stats().Floor, 2)
		equal(t, "committed", r.Stats().Committed, 0)
		if n := len(r.seen.of(dispatch.CommitFailed)); n < 10 {
			t.Errorf("D2: told %d times", n)
		}
		err := r.stop()
		if !errors.Is(err, dispatch.ErrDrain) || !errors.Is(err, errLost) || !strings.Contains(err.Error(), "0 abandoned") {
			t.Errorf("D2: drain: %v", err)
		}
		p.fails(nil)
		r = r.again(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{})
		time.Sleep(time.Minute)
		equal(t, "skipped", r.Stats().Skipped, 2)
		r.mustStop(t)
		same(t, "D2: a, once", r.of("a"), 0)
		v, _ = p.Ledger.Inspect(context.Background(), "a")
		equal(t, "ledger's floor", v.Floor, 2)
	})
}

// What the ledger has and the source has lost is tried, given up and told of, and what comes after it goes on.
func TestRecordGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, log := memory(t, 1), new(dispatch.Log)
		for _, offset := range []int64{-7, -5, 1} {
			if _, err := ledger.Offer(context.Background(), "k", offset); err != nil {
				t.Fatal(err)
			}
		}
		r := run(t, dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{CommitEvery: time.Millisecond})
		time.Sleep(time.Second)
		equal(t, "floor while nothing was read", r.Stats().Floor, -7)
		equal(t, "waiting", r.Stats().Waiting, 1)
		log.Append("other", nil) // 0: now it is known that -7 and -5 will not come
		time.Sleep(time.Second)
		equal(t, "floor", r.Stats().Floor, 1)
		log.Append("k", nil)
		time.Sleep(time.Second)
		r.mustStop(t)
		same(t, "k", r.of("k"), 1)
		if letters := r.letters(); len(letters) != 2 || letters[0].Record.Offset != -7 || letters[1].Record.Offset != -5 ||
			!errors.Is(letters[0].Err, dispatch.ErrRecordGone) {
			t.Errorf("D2: letters: %+v", letters)
		}
		equal(t, "floor", r.Stats().Floor, 2)
	})
}

// A dead letter that is refused keeps the floor, also when its process dies; only the first knows why, and under which lease.
func TestDeadLetterAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, log, refuse := memory(t, 0), fill("k", "k", "j"), true
		for life := range 3 {
			p := newProcess(ledger, log)
			r := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{
				Handler: func(_ context.Context, job dispatch.Job) error {
					if job.Record.Offset == 0 {
						return errLost
					}
					return nil
				},
				DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
					equal(t, "offset", letter.Record.Offset, 0)
					equal(t, "the first life knows why", letter.Err != nil, life == 0)
					equal(t, "and the lease", letter.Lease.Token != 0, life == 0)
					if refuse {
						return errLost
					}
					return nil
				},
			})
			time.Sleep(time.Minute)
			equal(t, "D2: floor", r.Stats().Committed, []int64{0, 0, 3}[life])
			p.kill()
			_ = r.stop()
			refuse = life == 0
		}
	})
}

// A record that no ledger can hold is a dead letter at once.
func TestRecordThatNoLedgerHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, dispatch.Partition{Ledger: memory(t, 3), Source: fill("", "k", "")}, dispatch.Config{})
		time.Sleep(time.Minute)
		r.mustStop(t)
		letters := r.letters()
		equal(t, "letters", len(letters), 2)
		equal(t, "floor", r.Stats().Floor, 3)
		if !errors.Is(letters[0].Err, lease.ErrInvalid) {
			t.Error(letters[0].Err)
		}
	})
}
