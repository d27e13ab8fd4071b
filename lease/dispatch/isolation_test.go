// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file holds D5: stuck, broken, hot and slow keys, which delay only themselves; all in virtual time.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// One key fails for ever, one never returns; the others, also those in the same reading, go on at once.
func TestStuckKeyDelaysOnlyItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(dispatch.Log)
		for i := range 3000 {
			log.Append([]string{"poison", "stuck", fmt.Sprint("k", i%50)}[i%3], nil)
		}
		began := time.Now()
		var mu sync.Mutex
		var last time.Time
		others := 0
		release := make(chan struct{})
		r := run(t, dispatch.Partition{Ledger: memory(t, 1<<30), Source: log}, dispatch.Config{
			MaxInFlight: 4, MaxBuffered: 100, MaxPerDomain: 10,
			Handler: func(_ context.Context, job dispatch.Job) error {
				switch job.Record.Domain {
				case "poison":
					panic("poison")
				case "stuck":
					<-release
					return nil
				}
				time.Sleep(time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				others++
				last = time.Now()
				return nil
			},
		})
		time.Sleep(time.Hour)
		mu.Lock()
		equal(t, "others", others, 1000)
		// Three free places, a millisecond each; poison takes no time.
		if took := last.Sub(began); took > 340*time.Millisecond {
			t.Errorf("D5: the others took %v", took)
		}
		mu.Unlock()
		s := r.Stats()
		equal(t, "floor", s.Floor, 0)
		equal(t, "next", r.Next(), 3000)
		equal(t, "buffered", s.Buffered, 20)
		equal(t, "behind", r.Behind(), 2)
		close(release)
		time.Sleep(time.Minute)
		equal(t, "succeeded", r.Stats().Succeeded, 2000)
		equal(t, "floor", r.Stats().Floor, 0)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// A ledger that fails for one domain delays that domain.
func TestBrokenDomainDelaysOnlyItself(t *testing.T) {
	for _, call := range []string{"TryAcquire", "Succeed", "Fail"} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := new(dispatch.Log)
				for i := range 200 {
					log.Append([]string{"broken", "fine"}[i%2], nil)
				}
				broken := true
				p := &process{Ledger: memory(t, 1), Source: log}
				p.fault = func(c, domain string) (before, after error) {
					if broken && c == call && domain == "broken" {
						return errLost, nil
					}
					return nil, nil
				}
				c := newCalls()
				r := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{
					MaxInFlight: 1,
					Handler: func(_ context.Context, job dispatch.Job) error {
						defer c.enter(job)()
						if call == "Fail" && job.Record.Offset%10 == 0 && job.Lease.RetryCount == 0 {
							return errors.New("once")
						}
						return nil
					},
				})
				time.Sleep(time.Second)
				equal(t, "fine", len(c.of("fine")), 100)
				equal(t, "floor", r.Stats().Floor, 0)
				p.mu.Lock()
				broken = false
				p.mu.Unlock()
				time.Sleep(time.Minute)
				r.mustStop(t)
				c.check(t)
				equal(t, "floor", r.Stats().Floor, 200)
				equal(t, "succeeded", r.Stats().Succeeded, 200)
			})
		})
	}
}

// A hot key has more records than its share: the others do not wait for it, and it is never without work.
func TestHotKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(dispatch.Log)
		for i := range 4000 {
			if i%2 == 0 {
				log.Append("hot", nil)
			} else {
				log.Append(fmt.Sprint("k", i%300), nil)
			}
		}
		began := time.Now()
		c := newCalls()
		r := run(t, dispatch.Partition{Ledger: memory(t, 0), Source: log}, dispatch.Config{
			MaxInFlight: 4, MaxBuffered: 100, MaxPerDomain: 10,
			Handler: func(_ context.Context, job dispatch.Job) error {
				defer c.enter(job)()
				time.Sleep(time.Millisecond)
				return nil
			},
		})
		time.Sleep(time.Minute)
		r.mustStop(t)
		c.check(t)
		times, _ := c.at("hot")
		equal(t, "hot", len(times), 2000)
		if took := times[1999].Sub(began); took > 2010*time.Millisecond {
			t.Errorf("D5: hot took %v for 1999 ms of work before its last", took)
		}
		var last time.Time
		for i := 1; i < 300; i += 2 {
			times, _ := c.at(fmt.Sprint("k", i))
			if at := times[len(times)-1]; at.After(last) {
				last = at
			}
		}
		if took := last.Sub(began); took > 700*time.Millisecond {
			t.Errorf("D5: the others took %v for 667 ms of work", took)
		}
	})
}

// A slow key holds the floor and nothing else.
func TestSlowKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := fill("slow")
		for i := range 500 {
			log.Append(fmt.Sprint("k", i%20), nil)
		}
		r := run(t, dispatch.Partition{Ledger: memory(t, 0), Source: log}, dispatch.Config{
			MaxInFlight: 2, MaxBuffered: 20, MaxPerDomain: 1,
			Handler: func(_ context.Context, job dispatch.Job) error {
				time.Sleep(time.Millisecond)
				if job.Record.Domain == "slow" {
					time.Sleep(10 * time.Second)
				}
				return nil
			},
		})
		time.Sleep(5 * time.Second)
		s := r.Stats()
		equal(t, "done", s.Succeeded, 500)
		equal(t, "floor", s.Floor, 0)
		equal(t, "oldest", s.Oldest, 5*time.Second)
		equal(t, "lag", s.Lag, 501)
		time.Sleep(6 * time.Second)
		equal(t, "floor", r.Stats().Floor, 501)
		equal(t, "lag", r.Stats().Lag, 0)
		r.mustStop(t)
	})
}

// Of two partitions one is idle, and in the other many keys fail at each attempt: all others are handled, and once the failing
// ones succeed, their records are too, in order.
func TestManyStuckKeysDelayOnlyThemselves(t *testing.T) {
	for stuck, owner := range map[int]func(string) string{100: nil, 50: func(string) string { return "all" }} {
		synctest.Test(t, func(t *testing.T) {
			const others, records = 50, 15_000
			log := new(dispatch.Log)
			for i := range records {
				log.Append(fmt.Sprint([]string{"stuck-", "other-", "other-"}[i%3], i/3%stuck%[]int{stuck, others, others}[i%3]), nil)
			}
			var broken atomic.Bool
			broken.Store(true)
			var handled, failed atomic.Int64
			c := newCalls()
			cfg := dispatch.Config{DeadLetter: dispatch.Discard, Owner: owner, Handler: func(_ context.Context, job dispatch.Job) error {
				if broken.Load() && job.Record.Domain[0] == 's' {
					failed.Add(1)
					return errors.New("not yet")
				}
				defer c.enter(job)()
				handled.Add(1)
				return nil
			}}
			r := consume(t, cfg)
			r.give(dispatch.Partition{Name: "busy", Ledger: memory(t, 1<<30), Source: log})
			r.give(dispatch.Partition{Name: "idle", Ledger: memory(t, 1<<30), Source: new(dispatch.Log)})
			time.Sleep(time.Hour)
			equal(t, "D5: others", int(handled.Load()), records/3*2)
			if int(failed.Load()) < stuck {
				t.Errorf("%d failures: nothing shown", failed.Load())
			}
			broken.Store(false)
			time.Sleep(time.Hour)
			equal(t, "D2: all", int(handled.Load()), records)
			for key := range stuck { // D1: in order, each once
				offsets := c.of(fmt.Sprint("stuck-", key))
				equal(t, "records of a key", len(offsets), records/3/stuck)
				if !slices.IsSorted(offsets) {
					t.Errorf("D1: %v", offsets)
				}
			}
			if err := r.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}
