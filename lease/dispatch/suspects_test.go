// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file holds D6 where it is about deaths: who pays for one, and who does not; all in virtual time.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// The table of a review: 200 records, each of a key of its own, take 100 ms; one kills its process after 50. It is given up after
// MaxRetries+1 runs, and nothing else is; what is behind it goes on.
func TestKillerDiesAlone(t *testing.T) {
	for _, c := range []struct{ inFlight, retries int }{{16, 3}, {16, 6}, {64, 3}, {64, 6}} {
		bubble(t, fmt.Sprint(c), func(t *testing.T) {
			const killer, behind = 70, 200
			ledger, log := memory(t, c.retries), spread(behind, behind)
			log.Append(fmt.Sprint("k", killer), nil)
			var mu sync.Mutex
			runs := map[int64][]int{} // the retry counts that handlers were called with
			r, deaths := noted(), -1
			for alive := false; !alive && deaths < 20; deaths++ {
				p, died := newProcess(ledger, log), make(chan struct{})
				die := sync.OnceFunc(func() { p.kill(); close(died) })
				r = r.again(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{
					MaxInFlight: c.inFlight, DrainTimeout: time.Millisecond,
					Handler: func(_ context.Context, job dispatch.Job) error {
						mu.Lock()
						runs[job.Record.Offset] = append(runs[job.Record.Offset], job.Lease.RetryCount)
						mu.Unlock()
						time.Sleep(50 * time.Millisecond)
						if job.Record.Offset == killer {
							die()
						}
						time.Sleep(50 * time.Millisecond)
						return nil
					},
				})
				select {
				case <-died:
					_ = r.stop()
					time.Sleep(time.Second) // until the handlers of the dead have ended
				case <-time.After(time.Minute):
					alive = true
					r.mustStop(t)
				}
			}
			equal(t, "D6: deaths", deaths, c.retries+1)
			equal(t, "committed", r.Stats().Committed, behind+1)
			if letters := r.letters(); len(letters) != 1 || letters[0].Record.Offset != killer || !errors.Is(letters[0].Err, dispatch.ErrDied) {
				t.Errorf("D6: letters: %v", letters)
			}
			var paid []int // by each run but the first
			for n := range c.retries + 1 {
				paid = append(paid, n)
			}
			same(t, "D6: the killer", runs[killer], paid...)
			same(t, "D6: behind it", runs[behind], 0)
			for offset, runs := range runs {
				if last := runs[len(runs)-1]; offset != killer && last > 1 {
					t.Errorf("D6: %d paid for %d of its %d runs", offset, last, len(runs))
				}
			}
		})
	}
}

// A suspect that hangs has the stand for AttemptTimeout, whether it listens or not, and stops nobody else.
func TestSuspectThatHangsStopsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, log := memory(t, 5), fill("deaf", "hangs", "fine", "ordinary")
		died(t, ledger, "deaf", "hangs", "fine")
		time.Sleep(time.Hour)
		began := time.Now()
		wake := make(chan struct{})
		r := run(t, dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{
			AttemptTimeout: 10 * time.Second, MaxInFlight: 3,
			Handler: func(ctx context.Context, job dispatch.Job) error {
				switch job.Record.Domain {
				case "deaf":
					<-wake
				case "hangs":
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			},
		})
		time.Sleep(25 * time.Second)
		for domain, most := range map[string]time.Duration{"ordinary": 0, "deaf": 20 * time.Second,
			"hangs": 20 * time.Second, "fine": 20 * time.Second} {
			if times, _ := r.at(domain); len(times) == 0 || times[0].Sub(began) > most {
				t.Errorf("D5: %s: at %v, want within %v of %v", domain, times, most, began)
			}
		}
		close(wake)
		time.Sleep(time.Minute)
		equal(t, "succeeded", r.Stats().Succeeded, 3)
		_ = r.stop()
	})
}

// suspected is so many partitions of records, of each of which the first ones ran when their process died.
func suspected(t testing.TB, partitions, records, suspects int) (parts []dispatch.Partition) {
	t.Helper()
	for i := range partitions {
		p := filled(t, fmt.Sprint("p", i), records)
		var domains []string
		for offset := range suspects {
			domains = append(domains, fmt.Sprint(p.Name, "/", offset))
		}
		died(t, p.Ledger, domains...)
		parts = append(parts, p)
	}
	return parts
}

// The process is what dies, so of the suspects of all its partitions one runs at a time, beside as much ordinary work as there
// are places.
func TestOneSuspectOfAllPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parts := suspected(t, 3, 10, 5)
		time.Sleep(time.Minute)
		var suspects atomic.Int64
		c := consume(t, dispatch.Config{MaxInFlight: 6, Handler: func(_ context.Context, job dispatch.Job) error {
			if job.Lease.RetryCount > 0 {
				if n := suspects.Add(1); n > 1 {
					t.Errorf("D6: %d suspects at once", n)
				}
				defer suspects.Add(-1)
			}
			time.Sleep(time.Second)
			return nil
		}})
		for _, p := range parts {
			c.give(p)
		}
		// fifteen suspects, one after the other, each of which may wait for a place while there is ordinary work
		time.Sleep(19 * time.Second)
		done := uint64(0)
		for _, s := range c.Stats() {
			done += s.Succeeded
		}
		equal(t, "succeeded", done, 30)
		equal(t, "most at once", c.most, 6)
		c.mustStop(t)
	})
}

// Trials go from partition to partition, to the one that has waited longest: none has two while another waits. A partition that
// is taken away when its turn has come leaves it to the next.
func TestTrialsByLongestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions, suspects = 4, 6
		c := consume(t, dispatch.Config{MaxInFlight: 8, Handler: taking(time.Second)})
		var take func(error)
		for _, p := range suspected(t, partitions, suspects, suspects) {
			take = c.give(p)
		}
		time.Sleep(10*time.Second + time.Millisecond)
		take(nil)
		time.Sleep(time.Minute)
		c.mustStop(t)
		last, turns := map[string]int{}, map[string]int{}
		for i, domain := range c.order {
			p := ownerOf(domain)
			before, had := last[p]
			if waited := i - before; had && i < 9 && waited < partitions || had && i < 16 && waited < partitions-1 {
				t.Errorf("D9: trial %d goes to %s again after %d: %v", i, p, waited, c.order)
			}
			last[p] = i
			turns[p]++
		}
		if turns["p0"] != suspects || turns["p1"] != suspects || turns["p2"] != suspects || turns["p3"] >= suspects {
			t.Errorf("D9: trials: %v", turns)
		}
	})
}
