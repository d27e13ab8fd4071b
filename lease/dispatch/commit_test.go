// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file holds D2: the floor passes what is done, and what was given up only when its dead letter has been accepted; all in
// virtual time.

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// Every floor that is committed has only done records below it, and the ledger is compacted to what was committed, never before.
func TestFloorNeverPassesUnfinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		done := map[int64]bool{}
		var committed, compacted int64
		p := &process{Ledger: memory(t, 2), Source: nil}
		log := new(dispatch.Log)
		for i := range 400 {
			log.Append(fmt.Sprint("k", i%13), nil)
		}
		p.Source = log
		check := func(call string, floor int64) {
			mu.Lock()
			defer mu.Unlock()
			for offset := range floor {
				if !done[offset] {
					t.Errorf("D2: %s(%d) before %d is done", call, floor, offset)
				}
			}
			if call == "Commit" {
				committed = floor
			} else if compacted = floor; compacted > committed {
				t.Errorf("D2: Compact(%d) before Commit: %d", compacted, committed)
			}
		}
		finish := func(offset int64) {
			mu.Lock()
			defer mu.Unlock()
			done[offset] = true
		}
		r := run(t, dispatch.Partition{Ledger: &watched{p, check}, Source: &watchedSource{log,
			check}}, dispatch.Config{
			MaxInFlight: 7, MaxBuffered: 64, MaxPerDomain: 3, CommitEvery: time.Millisecond,
			Handler: func(_ context.Context, job dispatch.Job) error {
				time.Sleep(time.Duration(job.Record.Offset*7%11) * time.Millisecond)
				if job.Record.Offset%17 == 3 {
					return errors.New("never")
				}
				finish(job.Record.Offset)
				return nil
			},
			DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
				time.Sleep(3 * time.Millisecond)
				finish(letter.Record.Offset)
				return nil
			},
		})
		time.Sleep(time.Minute)
		r.mustStop(t)
		equal(t, "committed", committed, 400)
		equal(t, "compacted", compacted, 400)
		equal(t, "dead lettered", r.Stats().DeadLettered, 24)
	})
}

type watched struct {
	*process
	check func(string, int64)
}

func (w *watched) Compact(ctx context.Context, floor int64) error {
	w.check("Compact", floor)
	return w.process.Compact(ctx, floor)
}

type watchedSource struct {
	*dispatch.Log
	check func(string, int64)
}

func (w *watchedSource) Commit(ctx context.Context, floor int64) error {
	w.check("Commit", floor)
	return w.Log.Commit(ctx, floor)
}

// A commit that is refused is not compacted either.
func TestRefusedCommitCompactsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := true
		p := &process{Ledger: memory(t, 0), Source: fill("a", "b")}
		p.fault = func(call, _ string) (before, after error) {
			if call == "Commit" && refuse {
				return errLost, nil
			}
			return nil, nil
		}
		seen := &events{}
		r := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{
			Observer: seen,
			Handler:  func(context.Context, dispatch.Job) error { return nil },
		})
		time.Sleep(time.Minute)
		v, _ := p.Ledger.Inspect(context.Background(), "a")
		if v.Floor >= 0 || v.Processed != 1 {
			t.Errorf("D2: compacted: %+v", v)
		}
		equal(t, "floor", r.Stats().Floor, 2)
		equal(t, "committed", r.Stats().Committed, 0)
		if len(seen.of(dispatch.CommitFailed)) < 10 {
			t.Errorf("D2: told %d times", len(seen.of(dispatch.CommitFailed)))
		}
		err := r.stop()
		if !errors.Is(err, dispatch.ErrDrain) || !errors.Is(err, errLost) || !strings.Contains(err.Error(), "0 abandoned") {
			t.Errorf("D2: drain: %v", err)
		}
		p.mu.Lock()
		refuse = false
		p.mu.Unlock()
		r = run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{
			Handler: func(context.Context, dispatch.Job) error { t.Error("D2: again"); return nil },
		})
		time.Sleep(time.Minute)
		equal(t, "skipped", r.Stats().Skipped, 2)
		r.mustStop(t)
		v, _ = p.Ledger.Inspect(context.Background(), "a")
		equal(t, "ledger's floor", v.Floor, 2)
	})
}

// What the ledger has and the source has lost is tried, given up and told of, and what comes after it goes on.
func TestRecordGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, ctx := memory(t, 1), context.Background()
		for _, offset := range []int64{-7, -5, 1} {
			if _, err := ledger.Offer(ctx, "k", offset); err != nil {
				t.Fatal(err)
			}
		}
		log := new(dispatch.Log)
		c := newCalls()
		var letters []dispatch.DeadLetter
		var d *dispatch.Dispatcher
		r := run(t, dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{
			CommitEvery: time.Millisecond,
			Handler: func(_ context.Context, job dispatch.Job) error {
				defer c.enter(job)()
				return nil
			},
			DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
				if floor := d.Stats().Floor; floor > letter.Record.Offset {
					t.Errorf("D2: the floor is %d before %d is done", floor, letter.Record.Offset)
				}
				time.Sleep(10 * time.Millisecond)
				letters = append(letters, letter)
				return nil
			},
		})
		d = r.Dispatcher
		time.Sleep(time.Second)
		equal(t, "floor while nothing was read", r.Stats().Floor, -7)
		equal(t, "waiting", r.Stats().Waiting, 1)
		log.Append("other", nil) // 0: now it is known that -7 and -5 will not come
		time.Sleep(time.Second)
		equal(t, "floor", r.Stats().Floor, 1)
		log.Append("k", nil)
		time.Sleep(time.Second)
		r.mustStop(t)
		same(t, "k", c.of("k"), 1)
		if len(letters) != 2 || letters[0].Record.Offset != -7 || letters[1].Record.Offset != -5 ||
			!errors.Is(letters[0].Err, dispatch.ErrRecordGone) {
			t.Errorf("D2: letters: %+v", letters)
		}
		equal(t, "floor", r.Stats().Floor, 2)
	})
}

// A dead letter is not lost by an error, a panic, Goexit or a crash; the floor waits for it, and so does its domain.
func TestDeadLetterIsDeliveredAtLeastOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, log := memory(t, 0), fill("k", "k", "j")
		for life := range 3 {
			p := &process{Ledger: ledger, Source: log}
			c := newCalls()
			tried := 0
			r := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{
				Handler: func(_ context.Context, job dispatch.Job) error {
					defer c.enter(job)()
					if job.Record.Offset == 0 {
						return errLost
					}
					return nil
				},
				DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
					equal(t, "offset", letter.Record.Offset, 0)
					equal(t, "the first life knows why", letter.Err != nil, life == 0)
					equal(t, "and the lease", letter.Lease.Token != 0, life == 0)
					switch tried++; {
					case life == 2 && tried == 4:
						return nil
					case tried%3 == 0:
						panic("no")
					case tried%3 == 1:
						runtime.Goexit()
					}
					return errLost
				},
			})
			for synctest.Wait(); tried < 4 && r.Stats().DeadLettered == 0; synctest.Wait() {
				time.Sleep(10 * time.Millisecond)
			}
			if life < 2 {
				equal(t, "floor", r.Stats().Floor, 0)
				same(t, "k waits", c.of("k")[min(1, len(c.of("k"))):])
			}
			p.kill()
			if life == 2 {
				p.mu.Lock()
				p.dead = false
				p.mu.Unlock()
				time.Sleep(time.Minute)
				equal(t, "floor", r.Stats().Committed, 3)
				same(t, "k", c.of("k"), 1)
			}
			_ = r.stop()
		}
	})
}

// A record that no ledger can hold is a dead letter at once.
func TestRecordThatNoLedgerHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var letters []dispatch.DeadLetter
		r := run(t, dispatch.Partition{Ledger: memory(t, 3), Source: fill("", "k", "")}, dispatch.Config{
			Handler: func(context.Context, dispatch.Job) error { return nil },
			DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
				letters = append(letters, letter)
				return nil
			},
		})
		time.Sleep(time.Minute)
		r.mustStop(t)
		equal(t, "letters", len(letters), 2)
		equal(t, "floor", r.Stats().Floor, 3)
		if !errors.Is(letters[0].Err, lease.ErrInvalid) {
			t.Error(letters[0].Err)
		}
	})
}
