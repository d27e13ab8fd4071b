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
	"sync"
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
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprint(call, " carried out ", after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ledger, log := memory(t, 2), fill("k", "k", "j")
					// somebody died with it, and the source has lost the record
					held, _ := ledger.TryAcquire(context.Background(), "h", -1)
					if call == "AcquireNext" { // what an earlier program offered
						_, _ = ledger.Offer(context.Background(), "k", 0)
						_, _ = ledger.Offer(context.Background(), "k", 1)
					}
					times := 0
					p := &process{Ledger: ledger, Source: log}
					p.fault = func(c, _ string) (error, error) {
						if c != call {
							return nil, nil
						}
						if times++; times > 1 {
							return nil, nil
						}
						if after {
							return nil, errLost
						}
						return errLost, nil
					}
					c := newCalls()
					var mu sync.Mutex
					var letters []dispatch.DeadLetter
					r := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{
						Grace: time.Hour,
						Handler: func(_ context.Context, job dispatch.Job) error {
							defer c.enter(job)()
							if job.Record.Offset == 0 {
								return errLost
							}
							return nil
						},
						DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
							mu.Lock()
							defer mu.Unlock()
							letters = append(letters, letter)
							return nil
						},
					})
					time.Sleep(10 * time.Minute)
					r.mustStop(t)
					same(t, "k", c.of("k"), 0, 0, 0, 1)
					same(t, "j", c.of("j"), 2)
					same(t, "h", c.of("h"))
					if times == 0 && call != "Inspect" {
						t.Error("never called")
					}
					s := r.Stats()
					equal(t, "floor", s.Floor, 3)
					equal(t, "succeeded", s.Succeeded, 2)
					equal(t, "dead lettered", s.DeadLettered, 2)
					if n := len(letters); n != 2 || letters[0].Lease.Token == held.Lease.Token {
						t.Errorf("letters: %+v", letters)
					}
				})
			})
		}
	}
}

// A Concurrency bounds several dispatchers together; its refusals cost a pause and no work.
func TestConcurrencyIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCalls()
		both := make(pool, 3)
		handler := func(_ context.Context, job dispatch.Job) error {
			defer c.enter(job)()
			time.Sleep(3 * time.Millisecond)
			return nil
		}
		seen := &events{}
		var all []*running
		for i := range 2 {
			log := new(dispatch.Log)
			for k := range 100 {
				log.Append(fmt.Sprint(i, "-", k%10), nil)
			}
			all = append(all, run(t, dispatch.Partition{Ledger: memory(t, 0), Source: log}, dispatch.Config{Concurrency: both.do,
				Observer: seen, Handler: handler}))
		}
		time.Sleep(time.Minute)
		for _, r := range all {
			r.mustStop(t)
			equal(t, "succeeded", r.Stats().Succeeded, 100)
			equal(t, "reclaimed", r.Stats().Reclaimed, 0)
		}
		equal(t, "most at once", c.most, 3)
		if len(seen.of(dispatch.Rejected)) == 0 {
			t.Error("nothing was told of refusals")
		}
	})
}

// While it is refused, nothing is leased, and a drain does not wait.
func TestRefusedHoldsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := memory(t, 0)
		r := run(t, dispatch.Partition{Ledger: ledger, Source: fill("k")}, dispatch.Config{
			Concurrency: make(pool).do,
			Handler:     func(context.Context, dispatch.Job) error { return nil },
		})
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
		p := &process{Ledger: memory(t, 0), Source: fill("k")}
		p.fault = func(call, _ string) (before, after error) {
			if call == "Fetch" {
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
		var waits []time.Duration
		for _, e := range seen.of(dispatch.FetchFailed) {
			waits = append(waits, e.Wait)
		}
		same(t, "waits", waits[:8], 100*time.Millisecond, 200*time.Millisecond, 400*time.Millisecond,
			800*time.Millisecond, 1600*time.Millisecond, 3200*time.Millisecond, 5*time.Second, 5*time.Second)
		p.mu.Lock()
		p.fault = nil
		p.mu.Unlock()
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := new(dispatch.Log)
				for i := range 50 {
					log.Append(fmt.Sprint("k", i%3), nil)
				}
				c, seen, wrong, want := newCalls(), &events{}, c.wrong, c.want
				r := run(t, dispatch.Partition{Ledger: memory(t, 0), Source: &sloppy{Log: log,
					wrong: wrong}}, dispatch.Config{
					Observer: seen, MaxBuffered: 8, MaxPerDomain: 2,
					Handler: func(_ context.Context, job dispatch.Job) error {
						defer c.enter(job)()
						time.Sleep(time.Millisecond)
						return nil
					},
				})
				time.Sleep(10 * time.Minute)
				r.mustStop(t)
				c.check(t)
				for k := range 3 {
					var want []int64
					for offset := int64(k); offset < 50; offset += 3 {
						want = append(want, offset)
					}
					same(t, fmt.Sprint("k", k), c.of(fmt.Sprint("k", k)), want...)
				}
				equal(t, "floor", r.Stats().Floor, 50)
				refused := seen.of(dispatch.FetchFailed)
				if len(refused) == 0 {
					t.Fatal("D2: nothing was refused")
				}
				if err := refused[0].Err; want != "" && (!is[*lease.InvalidError](err) || err.Error() != want) {
					t.Errorf("D2: refused: %v", refused[0].Err)
				}
			})
		})
	}
}

// Goexit and panics are failures like any other, and their stacks are told.
func TestHandlerPanicsAndLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &events{}
		r := run(t, dispatch.Partition{Ledger: memory(t, 1), Source: fill("panic", "exit", "error")}, dispatch.Config{
			Observer: seen,
			Handler: func(_ context.Context, job dispatch.Job) error {
				switch {
				case job.Lease.RetryCount > 0:
				case job.Record.Domain == "panic":
					panic(errLost)
				case job.Record.Domain == "exit":
					runtime.Goexit()
				default:
					return errLost
				}
				return nil
			},
		})
		time.Sleep(time.Minute)
		r.mustStop(t)
		equal(t, "succeeded", r.Stats().Succeeded, 3)
		for _, e := range seen.of(dispatch.Retrying) {
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
		r := run(t, dispatch.Partition{Ledger: memory(t, 0), Source: fill("k")}, dispatch.Config{
			Observer: seen,
			Handler:  func(context.Context, dispatch.Job) error { return nil },
		})
		time.Sleep(time.Minute)
		r.mustStop(t)
		equal(t, "succeeded", r.Stats().Succeeded, 1)
		equal(t, "panics", r.Stats().ObserverPanics, uint64(len(seen.all)))
		if err := r.Run(context.Background()); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("second Run: %v", err)
		}
	})
}
