// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file holds D8 where two owners overlap and the source knows the later one: a former owner takes nothing from it, and an
// owner who was fenced goes on if the partition is still its own; all in virtual time.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// claims is a log that whoever asked last for its position owns.
type claims struct {
	*dispatch.Log
	mu   sync.Mutex // guards last
	last *claim
}

// claim is the log as one owner sees it: once another has claimed it, commits are rejected.
type claim struct{ *claims }

func (c *claim) Committed(ctx context.Context) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = c
	return c.Log.Committed(ctx)
}

func (c *claim) Commit(ctx context.Context, floor int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != c {
		return dispatch.Lost("p", nil)
	}
	return c.Log.Commit(ctx, floor)
}

// keys is a log of n records of four keys.
func keys(n int) *claims { return &claims{Log: spread(n, 4)} }

// ended is how Run ended by itself, or how it drained if it did not within an hour.
func (r *running) ended() error {
	select {
	case err := <-r.result:
		return err
	case <-time.After(time.Hour):
		return r.stop()
	}
}

// Somebody died with leases. A member that takes the partition over is stopped before each of its calls, one after the other;
// another one takes the partition and is at work when the first wakes up. The one whose partition it is keeps all of its
// leases, and does all of the work.
func TestFormerOwnerStoppedWhileTaking(t *testing.T) {
	var stops []string
	for n := 1; len(stops) == n-1; n++ {
		bubble(t, fmt.Sprint("call ", n), func(t *testing.T) {
			ledger, log := memory(t, 3), keys(40)
			died(t, ledger, "k0", "k1", "k2", "k3")
			for l := range ledger.Held(t.Context()) {
				if l.Offset%2 == 0 && ledger.Release(t.Context(), l.Domain, l.Token) != nil {
					t.Fatal(l)
				}
			}
			asleep := make(chan struct{})
			var taken atomic.Bool
			var calls atomic.Int64
			first, second := newProcess(ledger, &claim{log}), &claim{log}
			first.fault = func(call, _ string) (before, after error) {
				if calls.Add(1) == int64(n) && !taken.Load() {
					stops = append(stops, call)
					<-asleep
				}
				return nil, nil
			}
			seen := &events{also: func(e dispatch.Event) {
				if e.Kind == dispatch.Taken {
					taken.Store(true)
				}
			}}
			other := run(t, dispatch.Partition{Ledger: first, Source: first}, dispatch.Config{Observer: seen,
				Handler: taking(10 * time.Second)})
			time.Sleep(time.Second)
			owner := run(t, dispatch.Partition{Ledger: ledger, Source: second}, dispatch.Config{Handler: taking(10 * time.Second)})
			time.Sleep(5 * time.Second)
			close(asleep)
			time.Sleep(time.Hour)
			fenced := owner.seen.of(dispatch.Fenced)
			if log.last != second {
				owner, other, fenced = other, owner, seen.of(dispatch.Fenced)
			}
			equal(t, fmt.Sprintf("D8: stopped before %v: the owner was fenced out", stops), len(fenced), 0)
			if err := other.stop(); !errors.Is(err, dispatch.ErrLost) {
				t.Errorf("D8: stopped before %v: the other one: %v", stops, err)
			}
			equal(t, fmt.Sprintf("D8: stopped before %v: floor", stops), owner.Stats().Floor, 40)
			owner.mustStop(t)
		})
	}
	t.Logf("stopped before each of %v", stops)
	if len(stops) < 9 {
		t.Errorf("%d stops, want one before each call of taking over", len(stops))
	}
}

// A lease of the next owner is in the way of one that does not know yet that it has lost the partition. When Grace is over, it
// asks.
func TestFormerOwnerAfterGrace(t *testing.T) {
	for _, released := range []bool{false, true} {
		bubble(t, fmt.Sprint("released ", released), func(t *testing.T) {
			ledger, log := memory(t, 1000), keys(0)
			p := newProcess(ledger, &claim{log})
			p.fails(errLost, "Fetch")
			old := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{CommitEvery: time.Hour})
			synctest.Wait()
			young := run(t, dispatch.Partition{Ledger: ledger, Source: &claim{log}}, dispatch.Config{
				Backoff: 20 * time.Minute,
				Handler: func(_ context.Context, job dispatch.Job) error {
					if released && job.Lease.RetryCount < 1 {
						return errLost
					}
					time.Sleep(10 * time.Minute)
					return nil
				},
			})
			synctest.Wait()
			for range 2 {
				log.Append("k", nil)
			}
			synctest.Wait()
			p.fails(nil)
			if err := old.ended(); !errors.Is(err, dispatch.ErrLost) {
				t.Errorf("D8: the former owner: %v", err)
			}
			equal(t, "D8: the owner was fenced out", len(young.seen.of(dispatch.Fenced)), 0)
			equal(t, "D8: reclaimed by the owner", young.Stats().Reclaimed, 0)
			time.Sleep(time.Hour)
			equal(t, "D8: floor", young.Stats().Floor, 2)
			young.mustStop(t)
			time.Sleep(time.Hour) // for a handler that the drain did not wait for
		})
	}
}

// leaving is what becomes of a lease that another process has taken.
var leaving = map[string]func(lease.Ledger, lease.Lease) error{
	"gives it back": func(ledger lease.Ledger, l lease.Lease) error {
		return ledger.Release(context.Background(), l.Domain, l.Token)
	},
	"does its work": func(ledger lease.Ledger, l lease.Lease) error {
		_, err := ledger.Succeed(context.Background(), l.Domain, l.Token)
		return err
	},
	"dies": func(lease.Ledger, lease.Lease) error { return nil },
}

// robs takes a lease, and leaves it in that way.
func robs(t testing.TB, how string, ledger lease.Ledger, l lease.Lease) {
	t.Helper()
	taken, err := ledger.Reclaim(context.Background(), l.Domain, l.Token)
	if err == nil {
		err = leaving[how](ledger, taken)
	}
	if err != nil {
		t.Error(err)
	}
}

// An owner is fenced out of a key, and the partition is its own all the same. It goes on with the key when the lease is free:
// at once if it was given back or its record is done, after Grace if not, and when the source can be asked again.
func TestFencedOwnerGoesOn(t *testing.T) {
	for how := range leaving {
		for _, outcome := range []error{nil, errors.New("failed"), dispatch.ErrPermanent} {
			for _, away := range []time.Duration{0, time.Hour} {
				bubble(t, fmt.Sprint(how, " ", outcome, " ", away), func(t *testing.T) {
					ledger, log := memory(t, 9), keys(40)
					var began atomic.Bool
					p := newProcess(ledger, &claim{log})
					r := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{
						Grace: 10 * time.Second,
						Handler: func(_ context.Context, job dispatch.Job) error {
							if job.Record.Offset > 0 || began.Swap(true) {
								return nil
							}
							if away > 0 {
								p.fails(errLost, "Commit")
							}
							robs(t, how, ledger, job.Lease)
							return outcome
						},
					})
					time.Sleep(5 * time.Second)
					want := 0
					if how == "dies" || away > 0 {
						want = 1
					}
					equal(t, "D8: fenced", r.Stats().Fenced, want)
					equal(t, "D8: of the other keys", r.Stats().Succeeded >= 30, true)
					time.Sleep(away)
					p.fails(nil)
					time.Sleep(time.Minute)
					equal(t, "D8: fenced", r.Stats().Fenced, 0)
					equal(t, "D8: floor", r.Stats().Floor, 40)
					r.mustStop(t)
					if told := r.seen.of(dispatch.Fenced); len(told) != 1 || told[0].Domain != "k0" || told[0].Err == nil {
						t.Errorf("D8: told: %+v", told)
					}
				})
			}
		}
	}
}

// The source says that it is another's: Run ends, and nothing that is the other's was touched.
func TestFencedOwnerHearsThatItIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, log := memory(t, 3), keys(40)
		var taken lease.Lease
		r := run(t, dispatch.Partition{Ledger: ledger, Source: &claim{log}}, dispatch.Config{
			CommitEvery: time.Hour,
			Handler: func(ctx context.Context, job dispatch.Job) (err error) {
				if job.Record.Offset == 0 {
					if _, err := (&claim{log}).Committed(ctx); err != nil {
						t.Error(err)
					}
					taken, err = ledger.Reclaim(ctx, "k0", job.Lease.Token)
				}
				return err
			},
		})
		if err := r.ended(); !errors.Is(err, dispatch.ErrLost) || errors.Is(err, dispatch.ErrDrain) {
			t.Errorf("D8: Run returned %v", err)
		}
		v, err := ledger.Inspect(t.Context(), "k0")
		if err != nil || v.Lease == nil || *v.Lease != taken {
			t.Errorf("D8: the lease is %+v, %v; it was %+v", v.Lease, err, taken)
		}
	})
}
