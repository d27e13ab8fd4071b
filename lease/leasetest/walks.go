// SPDX-License-Identifier: Apache-2.0

// The contract of Ready and Held: every domain once, no lock during the body, an end when the context or body asks.

package leasetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/model"
	"github.com/stopbank/stopbank/lease/internal/step"
)

func walkScenarios() []check {
	return []check{
		{"ReadyAndHeld", walks},
		{"HeldBodyReclaimsAndFails", heldBody},
		{"CompactReachesEveryDomain", wideCompact},
		{"WalksStopAtBreak", brokenOff},
		{"WalksEndWhenCancelled", cancelledWalks},
		{"WalksWithADoneContext", doneWalks},
	}
}

const (
	// many exceeds the size that a page, a batch or a table of shards is likely to have.
	many = 130
	// walkLimit bounds a walk that would otherwise hang on a lock.
	walkLimit = time.Minute
)

// within runs do and fails the test if it returns an error or does not return in time.
func (s session) within(what string, do func() error) {
	s.Helper()
	limit := walkLimit
	if w, ok := s.TB.(interface{ WalkLimit() time.Duration }); ok {
		limit = w.WalkLimit() // tests of the suite use a short limit
	}
	done := make(chan error, 1)
	go func() { done <- do() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		if err != nil {
			s.Fatalf("%s: %v", what, err)
		}
	case <-timer.C:
		s.Fatalf("%s: not back after %v: is a lock held?", what, limit)
	}
}

// crowd fills a ledger with many leases and as many heads, each in its own domain and at its own offset.
func (s session) crowd() (held []lease.Lease) {
	for i := range int64(many) {
		s.offers(fmt.Sprintf("ready %d", i), 1000+i, lease.Enqueued)
		held = append(held, s.try(fmt.Sprintf("held %d", i), i, lease.Acquired))
	}
	return held
}

func walks(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	s.succeed(s.try("done", 1, lease.Acquired))
	s.try("busy", 1, lease.Acquired)
	s.try("held", 2, lease.Acquired)
	s.try("held", 3, lease.Enqueued)
	s.offers("ready", 7, lease.Enqueued)
	s.offers("ready", 5, lease.Enqueued)
	s.offers("also ready", 1, lease.Enqueued)
	s.look()
	s.within("a Ready body that calls AcquireNext", func() error {
		for head := range s.Ready(ctx) {
			if _, err := s.make(model.Call{Op: step.AcquireNext, Domain: head.Domain}); err != nil {
				return err
			}
		}
		return nil
	})
	s.look()
}

func heldBody(t testing.TB, open Open) {
	s := start(t, open, lease.Config{MaxRetries: 1})
	s.crowd()
	n := 0
	s.within("a Held body that calls Reclaim and Fail", func() error {
		for l, err := range s.Held(ctx) {
			if err != nil {
				return err
			}
			n++
			heir, err := s.make(model.Call{Op: step.Reclaim, Domain: l.Domain, Token: l.Token})
			for range 2 {
				if err == nil {
					_, err = s.make(model.Call{Op: step.Fail, Domain: l.Domain, Token: heir.Lease.Token})
				}
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if n != many {
		s.Fatalf("Held yields %d leases, want %d", n, many)
	}
	for l := range s.Held(ctx) {
		s.Fatalf("%+v is held after its body has given it up", l)
	}
	s.look()
}

func wideCompact(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	for i := range many {
		domain := fmt.Sprintf("done %d", i)
		s.succeed(s.try(domain, 3, lease.Acquired))
		s.fails(s.try(domain, 4, lease.Acquired), lease.GiveUpNoBacklog)
		s.succeed(s.try(domain, 9, lease.Acquired))
	}
	s.compacts(5)
	s.look()
	for i := range many {
		for _, offset := range []int64{2, 4, 9} {
			s.try(fmt.Sprintf("done %d", i), offset, lease.AlreadyProcessed)
		}
	}
}

// leaves calls walk like a loop that breaks at its first item, and tolerates an engine that continues all the same.
func leaves[T any](walk iter.Seq2[T, error]) error {
	calls := 0
	var failed error
	walk(func(_ T, err error) bool {
		calls++
		failed = errors.Join(failed, err)
		return false
	})
	if calls != 1 || failed != nil {
		return fmt.Errorf("the body ran %d times, want 1: %v", calls, failed)
	}
	return nil
}

func brokenOff(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	held := s.crowd()
	s.within("a break in Held", func() error { return leaves(s.Held(ctx)) })
	s.within("a break in Ready", func() error { return leaves(s.Ready(ctx)) })
	s.within("calls after a break", func() error {
		for i, l := range held {
			for _, c := range []model.Call{{Op: step.Succeed, Domain: l.Domain, Token: l.Token},
				{Op: step.AcquireNext, Domain: fmt.Sprintf("ready %d", i)}} {
				if _, err := s.make(c); err != nil {
					return err
				}
			}
		}
		_, err := s.make(model.Call{Op: step.Compact})
		return err
	})
}

// ends cancels before a walk, or in its body, where one item may still come. Then comes the error, with no item, then nothing.
func ends[T comparable](s session, what string, walk func(context.Context) iter.Seq2[T, error], before bool) {
	s.Helper()
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	if before {
		cancel()
	}
	var (
		none  T
		items int
		ended error
	)
	for item, err := range walk(running) {
		switch {
		case ended != nil:
			s.Fatalf("%s yields %+v, %v after its error", what, item, err)
		case err == nil:
			items++
		case !errors.Is(err, context.Canceled) || item != none:
			s.Fatalf("%s, cancelled, yields %+v, %v", what, item, err)
		default:
			ended = err
		}
		cancel()
	}
	if before == (items > 0) || ended == nil {
		s.Fatalf("%s, cancelled before it or at its first item, ends after %d with %v", what, items, ended)
	}
}

func cancelledWalks(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	s.crowd()
	ends(s, "Held", s.Held, false)
	ends(s, "Ready", s.Ready, false)
}

func doneWalks(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	ends(s, "Held of nothing", s.Held, true)
	ends(s, "Ready of nothing", s.Ready, true)
	s.crowd()
	ends(s, "Held", s.Held, true)
	ends(s, "Ready", s.Ready, true)
}
