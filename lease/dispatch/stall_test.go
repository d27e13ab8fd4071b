// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file holds D12: a partition with waiting records goes on, or says why it does not; all in virtual time.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// heldBack is a log whose end is known and whose records from an offset on are not handed out.
type heldBack struct {
	*dispatch.Log
	from int64
}

func (h *heldBack) Fetch(ctx context.Context, from int64, limit int) ([]dispatch.Record, error) {
	if from >= h.from {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.Log.Fetch(ctx, from, min(limit, int(h.from-from)))
}

// Each way to stand still has its reason, told once in AttemptTimeout until it is over. A partition that goes on, or has
// nothing to do, says nothing.
func TestStalledSaysWhy(t *testing.T) {
	const period = 10 * time.Second
	for why, set := range map[string]func(t *testing.T, on *dispatch.Partition, cfg *dispatch.Config, release <-chan struct{}){
		"": func(_ *testing.T, on *dispatch.Partition, cfg *dispatch.Config, _ <-chan struct{}) {
			log := new(dispatch.Log)
			for range 30 {
				log.Append("k", nil)
			}
			on.Source = log
			cfg.Handler = taking(period - time.Millisecond)
		},
		"taking": func(_ *testing.T, on *dispatch.Partition, _ *dispatch.Config, release <-chan struct{}) {
			p := newProcess(on.Ledger, on.Source)
			p.fails(errLost, "Held")
			go func() { <-release; p.fails(nil) }()
			on.Ledger, on.Source = p, p
		},
		"working": func(_ *testing.T, _ *dispatch.Partition, cfg *dispatch.Config, release <-chan struct{}) {
			cfg.Handler = func(context.Context, dispatch.Job) error { <-release; return nil }
		},
		"fenced": func(t *testing.T, on *dispatch.Partition, cfg *dispatch.Config, _ <-chan struct{}) {
			cfg.Grace = 2*time.Minute + time.Second
			var once sync.Once
			cfg.Handler = func(_ context.Context, job dispatch.Job) error {
				once.Do(func() { robs(t, "dies", on.Ledger, job.Lease) })
				return nil
			}
		},
		"pausing": func(_ *testing.T, _ *dispatch.Partition, cfg *dispatch.Config, _ <-chan struct{}) {
			cfg.Backoff = 2*time.Minute + time.Second
			cfg.Handler = func(_ context.Context, job dispatch.Job) error {
				if job.Lease.RetryCount == 0 {
					return errors.New("once")
				}
				return nil
			}
		},
		"reading": func(_ *testing.T, on *dispatch.Partition, _ *dispatch.Config, release <-chan struct{}) {
			h := &heldBack{on.Source.(*dispatch.Log), 0}
			on.Source = h
			go func() { <-release; h.Append("k", nil) }()
		},
	} {
		bubble(t, why, func(t *testing.T) {
			release := make(chan struct{})
			partition := dispatch.Partition{Ledger: memory(t, 3), Source: fill("k")}
			cfg := dispatch.Config{AttemptTimeout: period}
			set(t, &partition, &cfg, release)
			r := run(t, partition, cfg)
			time.Sleep(2 * time.Minute)
			told := r.seen.of(dispatch.Stalled)
			if why == "" {
				equal(t, "D12: stalls told of a partition that goes on", len(told), 0)
				time.Sleep(10 * time.Minute)
				equal(t, "D12: stalls told of one without work", len(r.seen.of(dispatch.Stalled)), 0)
				r.mustStop(t)
				return
			}
			if len(told) < 10 || len(told) > 11 {
				t.Errorf("D12: told %d times in two minutes", len(told))
			}
			for _, e := range told {
				if e.Reason != why {
					t.Errorf("D12: told %q, want the reason %s", e.Reason, why)
				}
			}
			equal(t, "D12: Stats", r.Stats().Stalled, why)
			close(release)
			time.Sleep(time.Minute)
			if why != "reading" {
				equal(t, "D12: floor", r.Stats().Floor, 1)
				equal(t, "D12: Stats, when it goes on", r.Stats().Stalled, "")
			}
			r.mustStop(t)
		})
	}
}

// Records that come do not hide that none ends.
func TestStalledWhileRecordsCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, log := make(chan struct{}), fill("0")
		r := run(t, dispatch.Partition{Ledger: memory(t, 3), Source: log}, dispatch.Config{
			AttemptTimeout: 10 * time.Second,
			Handler:        func(context.Context, dispatch.Job) error { <-release; return nil },
		})
		for i := range 121 {
			time.Sleep(time.Second)
			log.Append(fmt.Sprint(i%3), nil)
		}
		if told := r.seen.of(dispatch.Stalled); len(told) < 10 || r.Stats().Stalled != "working" {
			t.Errorf("D12: told %d times in two minutes, %+v", len(told), r.Stats())
		}
		close(release)
		time.Sleep(time.Second)
		equal(t, "D12: Stats, when it goes on", r.Stats().Stalled, "")
		r.mustStop(t)
	})
}

// One partition of a Consumer has all the slots, with handlers that do not return in time: the other one says so.
func TestStalledForSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c := consume(t, dispatch.Config{
			MaxInFlight: 2, AttemptTimeout: time.Minute,
			Handler: func(_ context.Context, job dispatch.Job) error {
				if string(job.Record.Payload) == "hung" {
					<-release
				}
				return nil
			},
		})
		c.give(filled(t, "hung", 2))
		synctest.Wait()
		c.give(filled(t, "other", 2))
		time.Sleep(10*time.Minute + time.Second)
		reasons := map[string]string{}
		for _, s := range c.Stats() {
			reasons[s.Name] = s.Stalled
		}
		if reasons["hung"] != "working" || reasons["other"] != "slots" {
			t.Errorf("D12: %v", reasons)
		}
		close(release)
		time.Sleep(3 * time.Minute)
		for _, s := range c.Stats() {
			if s.Stalled != "" || s.Floor != 2 {
				t.Errorf("D12: %+v", s)
			}
		}
		c.mustStop(t)
	})
}
