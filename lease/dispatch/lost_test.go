// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file holds D8: a partition that is lost ends Run, whoever says so and whatever is running; all in virtual time.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// The Source says it, in any of its calls; what it says ends Run and is not argued with.
func TestSourceSaysLost(t *testing.T) {
	for _, call := range []string{"Committed", "Fetch", "Commit"} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lost := fmt.Errorf("it said: %w", dispatch.Lost("p", errLost))
				began, commits := time.Now(), 0
				p := &process{Ledger: memory(t, 3), Source: fill("a", "b")}
				p.fault = func(name, _ string) (before, after error) {
					if name == "Commit" {
						commits++
					}
					if name == call && (name == "Committed" || time.Since(began) >= time.Second) {
						return lost, nil
					}
					return nil, nil
				}
				log := p.Source.(*dispatch.Log)
				r := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{
					Handler: func(context.Context, dispatch.Job) error {
						time.Sleep(time.Second + time.Millisecond) // so that nothing is committed before
						return nil
					},
				})
				time.Sleep(time.Second + 500*time.Microsecond)
				log.Append("c", nil) // something to fetch
				if err := <-r.result; !errors.Is(err, dispatch.ErrLost) || !strings.Contains(err.Error(),
					"partition p lost") || !errors.Is(err, errLost) || errors.Is(err, dispatch.ErrDrain) {
					t.Errorf("D8: Run: %v", err)
				}
				if want := map[string]int{"Commit": 1}[call]; commits != want {
					t.Errorf("D8: %d commits, want %d", commits, want)
				}
			})
		})
	}
}

// A ledger that is written under a claim says it: before a lease, or when it is asked who has one.
func TestLedgerSaysLost(t *testing.T) {
	for _, call := range []string{"TryAcquire", "Held"} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lost := dispatch.Lost("p", errLost)
				p := &process{Ledger: memory(t, 3), Source: fill("a", "b")}
				p.fault = func(name, _ string) (before, after error) {
					if name == call {
						return lost, nil
					}
					return nil, nil
				}
				began := time.Now()
				r := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{Handler: func(context.Context, dispatch.Job) error {
					t.Error("D8: a handler runs")
					return nil
				}})
				if err := <-r.result; !errors.Is(err, dispatch.ErrLost) || !errors.Is(err, errLost) {
					t.Errorf("D8: Run: %v", err)
				}
				equal(t, "D8: after", time.Since(began), 0)
			})
		})
	}
}

// The cause of the context says it: running handlers may finish, nothing starts, and no floor is committed.
func TestCauseSaysLost(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		t.Run(fmt.Sprint("hangs ", hangs), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ledger, log, seen, c := memory(t, 3), fill("a", "a", "b"), &events{}, newCalls()
				release := make(chan struct{})
				d, err := dispatch.New(dispatch.Partition{Ledger: ledger, Source: log},
					dispatch.Config{DeadLetter: dispatch.Discard,
						Observer: seen, DrainTimeout: time.Second, CommitEvery: time.Hour,
						Handler: func(_ context.Context, job dispatch.Job) error {
							defer c.enter(job)()
							if hangs && job.Record.Domain == "b" {
								<-release
							}
							time.Sleep(100 * time.Millisecond)
							return nil
						}})
				if err != nil {
					t.Fatal(err)
				}
				ctx, end := context.WithCancelCause(t.Context())
				result := make(chan error, 1)
				go func() { result <- d.Run(ctx) }()
				synctest.Wait()
				end(dispatch.Lost("p", errLost))
				err = <-result
				if !errors.Is(err, dispatch.ErrLost) || !errors.Is(err, errLost) || errors.Is(err, dispatch.ErrDrain) != hangs ||
					strings.Contains(err.Error(), "1 abandoned") != hangs {
					t.Errorf("D8: Run: %v", err)
				}
				same(t, "a", c.of("a"), 0)
				if floor, _ := log.Committed(t.Context()); floor != 0 || len(seen.of(dispatch.Committed)) > 0 {
					t.Errorf("D8: committed %d", floor)
				}
				close(release)
				time.Sleep(time.Second)
			})
		})
	}
}

// Before the partition is taken, too; and a drain whose last commit is refused says the same.
func TestLostAtBothEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancelCause(t.Context())
		end(dispatch.Lost("p", errLost))
		partition := dispatch.Partition{Ledger: memory(t, 3), Source: fill("a")}
		cfg := dispatch.Config{
			DeadLetter: dispatch.Discard,
			Handler:    func(context.Context, dispatch.Job) error { return nil },
		}
		d, err := dispatch.New(partition, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Run(ctx); !errors.Is(err, dispatch.ErrLost) {
			t.Errorf("D8: Run of a partition that is lost already: %v", err)
		}

		p := &process{Ledger: partition.Ledger, Source: partition.Source}
		p.fault = func(call, _ string) (before, after error) {
			if call == "Commit" {
				before = dispatch.Lost("p", nil)
			}
			return before, nil
		}
		partition.Source, cfg.CommitEvery = p, time.Hour
		r := run(t, partition, cfg)
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
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ledger, log := memory(t, 5), fill("k", "k")
				var cut, gone atomic.Bool
				p := &process{Ledger: ledger, Source: log}
				p.fault = func(name, _ string) (before, after error) {
					switch {
					case name == "Commit" && gone.Load():
						return dispatch.Lost("p", errLost), nil
					case name == call && !gone.Load() && cut.Load():
						return errLost, nil
					}
					return nil, nil
				}
				cut.Store(call == "TryAcquire")
				c := newCalls()
				old := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{
					CommitEvery: time.Hour,
					Handler: func(_ context.Context, job dispatch.Job) error {
						defer c.enter(job)()
						cut.Store(true)
						return errLost
					},
				})
				time.Sleep(5 * time.Second)
				gone.Store(true) // and then the ledger can be reached again
				seen := &events{}
				young := run(t, dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{
					Observer: seen,
					Handler: func(_ context.Context, job dispatch.Job) error {
						defer c.enter(job)()
						time.Sleep(time.Minute)
						return nil
					},
				})
				time.Sleep(10 * time.Minute)
				if err := <-old.result; !errors.Is(err, dispatch.ErrLost) {
					t.Errorf("D8: the old owner: %v", err)
				}
				young.mustStop(t)
				if n := len(seen.of(dispatch.Fenced)); n > 0 {
					t.Errorf("D8: the new owner was fenced out %d times", n)
				}
				equal(t, "floor", young.Stats().Floor, 2)
			})
		})
	}
}
