// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file is the parts that fail: lost replies, refusals, a source that breaks its promises, panics; all in virtual time.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// Each call's reply is lost once, and once the call is not made at all: one attempt stays one attempt.
func TestLostReplies(t *testing.T) {
	for _, call := range []string{"TryAcquire", "AcquireNext", "Succeed", "Fail", "Reclaim", "Release", "Compact",
		"Inspect", "Held", "Ready", "Committed", "Fetch", "Commit"} {
		for _, carried := range []bool{false, true} {
			bubble(t, fmt.Sprint(call, " carried out ", carried), func(t *testing.T) {
				ledger, log := memory(t, 2), fill("k", "k", "j")
				// somebody died with it, and the source has lost the record
				held, _ := ledger.TryAcquire(context.Background(), "h", -1)
				if call == "AcquireNext" { // what an earlier program offered
					_, _ = ledger.Offer(context.Background(), "k", 0)
					_, _ = ledger.Offer(context.Background(), "k", 1)
				}
				times := 0
				p := newProcess(ledger, log)
				p.fault = func(c, _ string) (before, after error) {
					if c == call {
						times++
					}
					switch {
					case c != call || times > 1:
						return nil, nil
					case carried:
						return nil, errLost
					}
					return errLost, nil
				}
				r := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{
					Grace: time.Hour,
					Handler: func(_ context.Context, job dispatch.Job) error {
						if job.Record.Offset == 0 {
							return errLost
						}
						return nil
					},
				})
				time.Sleep(10 * time.Minute)
				r.mustStop(t)
				same(t, "k", r.of("k"), 0, 0, 0, 1)
				same(t, "j", r.of("j"), 2)
				same(t, "h", r.of("h"))
				if times == 0 && call != "Inspect" {
					t.Error("never called")
				}
				s := r.Stats()
				equal(t, "floor", s.Floor, 3)
				equal(t, "succeeded", s.Succeeded, 2)
				equal(t, "dead lettered", s.DeadLettered, 2)
				if letters := r.letters(); len(letters) != 2 || letters[0].Lease.Token == held.Lease.Token {
					t.Errorf("letters: %+v", letters)
				}
			})
		}
	}
}

// A Concurrency bounds several dispatchers together; its refusals cost a pause and no work.
func TestConcurrencyIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := dispatch.Config{
			Concurrency: make(pool, 3).do,
			Handler:     func(context.Context, dispatch.Job) error { time.Sleep(3 * time.Millisecond); return nil },
		}
		r := noted()
		var all []*running
		for i := range 2 {
			log := new(dispatch.Log)
			for k := range 100 {
				log.Append(fmt.Sprint(i, "-", k%10), nil)
			}
			all = append(all, r.again(t, dispatch.Partition{Ledger: memory(t, 0), Source: log}, cfg))
		}
		time.Sleep(time.Minute)
		for _, r := range all {
			r.mustStop(t)
			equal(t, "succeeded", r.Stats().Succeeded, 100)
			equal(t, "reclaimed", r.Stats().Reclaimed, 0)
		}
		equal(t, "most at once", r.most, 3)
		if len(r.seen.of(dispatch.Rejected)) == 0 {
			t.Error("nothing was told of refusals")
		}
	})
}

// While it is refused, nothing is leased, and a drain does not wait.
func TestRefusedHoldsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := memory(t, 0)
		r := run(t, dispatch.Partition{Ledger: ledger, Source: fill("k")}, dispatch.Config{Concurrency: make(pool).do})
		time.Sleep(time.Minute)
		for l := range ledger.Held(context.Background()) {
			t.Errorf("held: %+v", l)
		}
		began := time.Now()
		r.mustStop(t)
		equal(t, "drained in", time.Since(began), 0)
		equal(t, "floor", r.Stats().Floor, 0)
	})
}

// A source that fails is asked again with growing pauses.
func TestSourceFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(memory(t, 0), fill("k"))
		p.fails(errLost, "Fetch")
		r := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{})
		time.Sleep(time.Minute)
		var waits []time.Duration
		for _, e := range r.seen.of(dispatch.FetchFailed) {
			waits = append(waits, e.Wait)
		}
		same(t, "waits", waits[:8], 100*time.Millisecond, 200*time.Millisecond, 400*time.Millisecond,
			800*time.Millisecond, 1600*time.Millisecond, 3200*time.Millisecond, 5*time.Second, 5*time.Second)
		p.fails(nil)
		time.Sleep(6 * time.Second)
		equal(t, "succeeded", r.Stats().Succeeded, 1)
		r.mustStop(t)
	})
}

// sloppy is a source that breaks its promises in every other Fetch; wrong says how.
type sloppy struct {
	*dispatch.Log
	calls int
	wrong func(from int64, records []dispatch.Record) []dispatch.Record
}

func (s *sloppy) Fetch(ctx context.Context, from int64, limit int) ([]dispatch.Record, error) {
	s.calls++
	if s.calls%2 == 0 {
		return s.Log.Fetch(ctx, from, limit)
	}
	records, err := s.Log.Fetch(ctx, max(0, from-2), limit+5)
	return s.wrong(from, records), err
}

// What Fetch must not return is refused aloud: nothing of it is taken, the error names the offsets, and it is read again.
func TestSloppySourceIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		wrong func(from int64, records []dispatch.Record) []dispatch.Record
		want  string // the text of the first refusal
	}{
		"nothing": {wrong: func(int64, []dispatch.Record) []dispatch.Record { return nil }},
		"below from": {
			wrong: func(from int64, records []dispatch.Record) []dispatch.Record {
				if from == 0 {
					return []dispatch.Record{{Domain: "k0", Offset: -3}}
				}
				return records
			},
			want: "lease: dispatch.Source.Fetch: an offset from 0 on is -3; allowed: 0 or more",
		},
		"neighbours swapped": {
			wrong: func(_ int64, records []dispatch.Record) []dispatch.Record {
				records = slices.DeleteFunc(records, func(r dispatch.Record) bool { return r.Offset%2 == 1 && r.Offset < 10 })
				slices.Reverse(records)
				return records
			},
			want: "lease: dispatch.Source.Fetch: an offset from 0 on is 11; allowed: more than 12, the offset before",
		},
		"the largest offset": { // the floor behind it would be the smallest
			wrong: func(_ int64, records []dispatch.Record) []dispatch.Record {
				return append(records[len(records)-1:], dispatch.Record{Domain: "k0", Offset: math.MaxInt64})
			},
			want: "lease: dispatch.Source.Fetch: an offset from 0 on is 9223372036854775807; allowed: less than 9223372036854775807",
		},
		"twice": {
			wrong: func(_ int64, records []dispatch.Record) []dispatch.Record {
				return append(records[len(records)-1:], records[len(records)-1])
			},
			want: "lease: dispatch.Source.Fetch: an offset from 0 on is 12; allowed: more than 12, the offset before",
		},
	} {
		bubble(t, name, func(t *testing.T) {
			source := &sloppy{Log: spread(50, 3), wrong: c.wrong}
			r := run(t, dispatch.Partition{Ledger: memory(t, 0), Source: source}, dispatch.Config{
				MaxBuffered: 8, MaxPerDomain: 2, Handler: taking(time.Millisecond),
			})
			time.Sleep(10 * time.Minute)
			r.mustStop(t)
			r.inTurn(t, 50, 3)
			equal(t, "floor", r.Stats().Floor, 50)
			refused := r.seen.of(dispatch.FetchFailed)
			if len(refused) == 0 {
				t.Fatal("D2: nothing was refused")
			}
			if err := refused[0].Err; c.want != "" && (!is[*lease.InvalidError](err) || err.Error() != c.want) {
				t.Errorf("D2: refused: %v", err)
			}
		})
	}
}

// Goexit and panics are failures like any other, and their stacks are told.
func TestHandlerPanicsAndLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, dispatch.Partition{Ledger: memory(t, 1), Source: fill("panic", "exit", "error")}, dispatch.Config{
			Handler: func(_ context.Context, job dispatch.Job) error {
				switch {
				case job.Lease.RetryCount > 0:
					return nil
				case job.Record.Domain == "panic":
					panic(errLost)
				case job.Record.Domain == "exit":
					runtime.Goexit()
				}
				return errLost
			},
		})
		time.Sleep(time.Minute)
		r.mustStop(t)
		equal(t, "succeeded", r.Stats().Succeeded, 3)
		for _, e := range r.seen.of(dispatch.Retrying) {
			switch e.Domain {
			case "panic":
				var p *dispatch.PanicError
				if !errors.As(e.Err, &p) || !errors.Is(e.Err, errLost) || len(p.Stack) == 0 {
					t.Errorf("panic: %v", e.Err)
				}
			case "exit":
				equal(t, "exit", e.Err.Error(), "dispatch: handler called runtime.Goexit")
			case "error":
				equal(t, "error", e.Err, errLost)
			}
			equal(t, e.Domain, e.Wait, 100*time.Millisecond)
		}
	})
}

// An observer that panics changes nothing.
func TestObserverPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &events{also: func(dispatch.Event) { panic("observer") }}
		r := run(t, dispatch.Partition{Ledger: memory(t, 0), Source: fill("k")}, dispatch.Config{Observer: seen})
		time.Sleep(time.Minute)
		r.mustStop(t)
		equal(t, "succeeded", r.Stats().Succeeded, 1)
		equal(t, "panics", r.Stats().ObserverPanics, uint64(len(seen.all)))
		if err := r.Run(context.Background()); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("second Run: %v", err)
		}
	})
}
