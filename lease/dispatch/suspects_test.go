// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file holds D6 where it is about deaths: who pays for one, and who does not; all in virtual time.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// lives runs one process after the other over a ledger and a log that outlast them, until one is left alone for a minute.
type lives struct {
	ledger lease.Ledger
	log    *dispatch.Log
	cfg    dispatch.Config

	mu      sync.Mutex
	runs    map[int64][]int // the retry counts that handlers were called with
	failed  map[int64]int   // failures of handlers whose process lived to see them
	letters map[int64]error
	deaths  int
}

// live runs processes; work is the handler, which is told how to die.
func (l *lives) live(t *testing.T, most int, work func(ctx context.Context, job dispatch.Job, die func()) error) {
	t.Helper()
	l.runs, l.failed, l.letters = map[int64][]int{}, map[int64]int{}, map[int64]error{}
	defer time.Sleep(time.Minute) // until the handlers of the dead have ended
	for range most {
		p := &process{Ledger: l.ledger, Source: l.log}
		died := make(chan struct{})
		die := sync.OnceFunc(func() {
			p.kill()
			close(died)
		})
		cfg := l.cfg
		cfg.DrainTimeout = time.Millisecond
		cfg.Handler = func(ctx context.Context, job dispatch.Job) error {
			l.mu.Lock()
			l.runs[job.Record.Offset] = append(l.runs[job.Record.Offset], job.Lease.RetryCount)
			l.mu.Unlock()
			err := work(ctx, job, die)
			if before, _ := p.rule("Handler", ""); before == nil && err != nil {
				l.mu.Lock()
				l.failed[job.Record.Offset]++
				l.mu.Unlock()
			}
			return err
		}
		cfg.DeadLetter = func(_ context.Context, letter dispatch.DeadLetter) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.letters[letter.Record.Offset] = letter.Err
			return nil
		}
		r := run(t, dispatch.Partition{Ledger: p, Source: p}, cfg)
		select {
		case <-died:
			l.deaths++
			_ = r.stop()
		case <-time.After(time.Minute):
			r.mustStop(t)
			equal(t, "committed", r.Stats().Committed, r.Next())
			return
		}
	}
	t.Fatalf("%d deaths", l.deaths)
}

// The table of a review: 200 records, each of a key of its own, take 100 ms; one kills its process after 50. It is given up after
// MaxRetries+1 runs, and nothing else is.
func TestKillerDiesAlone(t *testing.T) {
	for _, c := range []struct{ inFlight, retries int }{{16, 3}, {16, 6}, {64, 3}, {64, 6}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const killer = 70
				l := lives{ledger: memory(t, c.retries), log: new(dispatch.Log), cfg: dispatch.Config{MaxInFlight: c.inFlight}}
				for i := range 200 {
					l.log.Append(fmt.Sprint("k", i), nil)
				}
				l.live(t, 20, func(_ context.Context, job dispatch.Job, die func()) error {
					time.Sleep(50 * time.Millisecond)
					if job.Record.Offset == killer {
						die()
					}
					time.Sleep(50 * time.Millisecond)
					return nil
				})
				equal(t, "deaths", l.deaths, c.retries+1)
				if len(l.letters) != 1 || !errors.Is(l.letters[killer], dispatch.ErrDied) {
					t.Errorf("D6: letters: %v", l.letters)
				}
				for offset, runs := range l.runs {
					want := make([]int, 0, c.retries+1)
					if offset == killer { // each run but the first has been paid for
						for n := range c.retries + 1 {
							want = append(want, n)
						}
						same(t, "the killer", runs, want...)
					} else if last := runs[len(runs)-1]; last > 1 {
						t.Errorf("D6: %d paid for %d of its %d runs", offset, last, len(runs))
					}
				}
			})
		})
	}
}

// A death costs nobody an attempt: a record that runs when its process dies fails MaxRetries+1 times all the same before it is
// given up; one that waits for its last retry has it, when it is due.
func TestDeathCostsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const retries = 2
		l := lives{ledger: memory(t, retries), log: fill("waits", "beside", "killer"),
			cfg: dispatch.Config{Backoff: 4 * time.Second}}
		l.live(t, 20, func(_ context.Context, job dispatch.Job, die func()) error {
			switch job.Record.Domain {
			case "killer":
				time.Sleep(10 * time.Second) // "waits" has failed at 0 and 4 s, and is due at 12 s
				die()
				return nil
			case "beside":
				if job.Lease.RetryCount == 0 {
					time.Sleep(20 * time.Second)
				}
			}
			return errLost
		})
		equal(t, "deaths", l.deaths, retries+1)
		equal(t, "waits: failed", l.failed[0], retries+1)
		same(t, "waits", l.runs[0], 0, 1, 2)
		equal(t, "beside: failed", l.failed[1], retries+1)
		for offset, want := range map[int64]error{0: errLost, 1: errLost, 2: dispatch.ErrDied} {
			if !errors.Is(l.letters[offset], want) {
				t.Errorf("D6: letter of %d: %v", offset, l.letters[offset])
			}
		}
	})
}

// Whoever had the lease is fenced out before its record runs again: he may be late, not dead.
func TestLateOwnerIsFencedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := memory(t, 5)
		late, err := ledger.TryAcquire(t.Context(), "k", 0)
		if err != nil {
			t.Fatal(err)
		}
		var refused error
		r := run(t, dispatch.Partition{Ledger: ledger, Source: fill("k")}, dispatch.Config{
			Handler: func(ctx context.Context, job dispatch.Job) error {
				_, refused = ledger.Succeed(ctx, "k", late.Lease.Token)
				return nil
			},
		})
		time.Sleep(time.Minute)
		r.mustStop(t)
		if !errors.Is(refused, lease.ErrTokenMismatch) {
			t.Errorf("D6: the late owner's Succeed: %v", refused)
		}
		equal(t, "succeeded", r.Stats().Succeeded, 1)
	})
}

// Suspects stay suspects through a drain that comes before their trial, and pay nothing for it.
func TestDrainAcquitsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, log, ctx := memory(t, 5), fill("a", "b", "c"), context.Background()
		for i, domain := range []string{"a", "b", "c"} {
			if _, err := ledger.TryAcquire(ctx, domain, int64(i)); err != nil { // whoever had these is dead
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		c := newCalls()
		cfg := dispatch.Config{
			DrainTimeout: time.Second,
			Handler: func(ctx context.Context, job dispatch.Job) error {
				defer c.enter(job)()
				<-ctx.Done()
				return ctx.Err()
			},
		}
		for life := 1; life <= 3; life++ {
			r := run(t, dispatch.Partition{Ledger: ledger, Source: log}, cfg)
			time.Sleep(time.Second)
			synctest.Wait()
			equal(t, "running", c.running(), life) // one suspect, and those that have had their run and are ordinary again
			r.mustStop(t)
			back := 0
			for l := range ledger.Held(ctx) {
				if l.Released {
					back++
				}
				equal(t, "paid by who was given back", l.RetryCount == 1, l.Released)
			}
			equal(t, "given back", back, life)
		}
	})
}

// A suspect that hangs has the stand for AttemptTimeout, whether it listens or not, and stops nobody else.
func TestSuspectThatHangsStopsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, log, ctx := memory(t, 5), fill("deaf", "hangs", "fine", "ordinary"), context.Background()
		for i, domain := range []string{"deaf", "hangs", "fine"} {
			if _, err := ledger.TryAcquire(ctx, domain, int64(i)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		began, c := time.Now(), newCalls()
		wake := make(chan struct{})
		r := run(t, dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{
			AttemptTimeout: 10 * time.Second, MaxInFlight: 3,
			Handler: func(ctx context.Context, job dispatch.Job) error {
				defer c.enter(job)()
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
			if times, _ := c.at(domain); len(times) == 0 || times[0].Sub(began) > most {
				t.Errorf("D5: %s: at %v, want within %v of %v", domain, times, most, began)
			}
		}
		close(wake)
		time.Sleep(time.Minute)
		equal(t, "succeeded", r.Stats().Succeeded, 3)
		_ = r.stop()
	})
}

// The process is what dies, so of the suspects of all its partitions one runs at a time, beside as much ordinary work as there
// are places.
func TestOneSuspectOfAllPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		var parts []dispatch.Partition
		for i := range 3 {
			p := filled(t, fmt.Sprint("p", i), 10)
			for offset := range int64(5) { // whoever had these is dead
				if _, err := p.Ledger.TryAcquire(ctx, fmt.Sprint(p.Name, "/", offset), offset); err != nil {
					t.Fatal(err)
				}
			}
			parts = append(parts, p)
		}
		time.Sleep(time.Minute)
		var mu sync.Mutex
		suspects, ordinary, most := 0, 0, 0
		c := consume(t, dispatch.Config{MaxInFlight: 6, Handler: func(_ context.Context, job dispatch.Job) error {
			mu.Lock()
			n := &ordinary
			if job.Lease.RetryCount > 0 {
				n = &suspects
			}
			if *n++; suspects > 1 {
				t.Errorf("D6: %d suspects at once", suspects)
			}
			most = max(most, suspects+ordinary)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			*n--
			mu.Unlock()
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
		equal(t, "most at once", most, 6)
		if err := c.stop(); err != nil {
			t.Error(err)
		}
	})
}

// Trials go from partition to partition, to the one that has waited longest: none has two while another waits. A partition that
// is taken away when its turn has come leaves it to the next.
func TestTrialsByLongestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions, suspects = 4, 6
		var parts []dispatch.Partition
		for i := range partitions {
			p := filled(t, fmt.Sprint("p", i), suspects)
			for offset := range int64(suspects) { // whoever had these is dead
				if _, err := p.Ledger.TryAcquire(context.Background(), fmt.Sprint(p.Name, "/", offset), offset); err != nil {
					t.Fatal(err)
				}
			}
			parts = append(parts, p)
		}
		var mu sync.Mutex
		var order []string
		c := consume(t, dispatch.Config{MaxInFlight: 8, Handler: func(_ context.Context, job dispatch.Job) error {
			mu.Lock()
			order = append(order, job.Record.Domain[:2])
			mu.Unlock()
			time.Sleep(time.Second)
			return nil
		}})
		var take func(error)
		for _, p := range parts {
			take = c.give(p)
		}
		time.Sleep(10*time.Second + time.Millisecond)
		take(nil)
		time.Sleep(time.Minute)
		if err := c.stop(); err != nil {
			t.Error(err)
		}
		last, turns := map[string]int{}, map[string]int{}
		for i, p := range order {
			before, had := last[p]
			if waited := i - before; had && i < 9 && waited < partitions || had && i < 16 && waited < partitions-1 {
				t.Errorf("D9: trial %d goes to %s again after %d: %v", i, p, waited, order)
			}
			last[p] = i
			turns[p]++
		}
		if turns["p0"] != suspects || turns["p1"] != suspects || turns["p2"] != suspects || turns["p3"] >= suspects {
			t.Errorf("D9: trials: %v", turns)
		}
	})
}
