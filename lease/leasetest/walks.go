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
)

func walkScenarios() []check {
	return []check{
		{"ReadyAndHeld", walks},
		{"HeldBodyReclaimsAndFails", heldBody},
		{"WalksReachEveryDomainOnce", wholeWalks},
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
func (s session) crowd() (held map[string]lease.Lease, ready map[string]lease.Head) {
	held, ready = map[string]lease.Lease{}, map[string]lease.Head{}
	for i := range int64(many) {
		h := lease.Head{Domain: fmt.Sprintf("ready %d", i), Offset: 1000 + i}
		s.offers(h.Domain, h.Offset, lease.Enqueued)
		ready[h.Domain] = h
		busy := fmt.Sprintf("held %d", i)
		held[busy] = s.try(busy, i, lease.Acquired)
	}
	return held, ready
}

// sameWalk walks to the end and requires exactly the wanted items, once each.
func sameWalk[T comparable](walk iter.Seq2[T, error], want map[string]T, domain func(T) string) error {
	seen := map[string]bool{}
	for item, err := range walk {
		name := domain(item)
		switch wanted, ok := want[name]; {
		case err != nil:
			return err
		case seen[name]:
			return fmt.Errorf("%q twice", name)
		case !ok || item != wanted:
			return fmt.Errorf("%+v, want %+v", item, wanted)
		}
		seen[name] = true
	}
	if len(seen) != len(want) {
		return fmt.Errorf("%d domains, want %d", len(seen), len(want))
	}
	return nil
}

func holder(l lease.Lease) string { return l.Domain }
func waiter(h lease.Head) string  { return h.Domain }

func walks(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	s.succeed(s.try("done", 1, lease.Acquired), noBacklog)
	held := map[string]lease.Lease{"busy": s.try("busy", 1, lease.Acquired), "held": s.try("held", 2, lease.Acquired)}
	s.try("held", 3, lease.Enqueued)
	s.offers("ready", 7, lease.Enqueued)
	s.offers("ready", 5, lease.Enqueued)
	s.offers("also ready", 1, lease.Enqueued)
	ready := map[string]lease.Head{"ready": {Domain: "ready", Offset: 7}, "also ready": {Domain: "also ready", Offset: 1}}
	s.within("Held", func() error { return sameWalk(s.Held(ctx), held, holder) })
	s.within("Ready", func() error { return sameWalk(s.Ready(ctx), ready, waiter) })
	s.within("a Ready body that calls AcquireNext", func() error {
		for head := range s.Ready(ctx) {
			if a, err := s.AcquireNext(ctx, head.Domain); err != nil || a.Status != lease.Acquired ||
				a.Lease.Offset != head.Offset {
				return fmt.Errorf("AcquireNext(%s) = %+v, %v", head.Domain, a, err)
			}
		}
		return sameWalk(s.Ready(ctx), nil, waiter)
	})
}

func heldBody(t testing.TB, open Open) {
	s := start(t, open, lease.Config{MaxRetries: 1})
	held, _ := s.crowd()
	seen := map[string]bool{}
	s.within("a Held body that calls Reclaim and Fail", func() error {
		for l, err := range s.Held(ctx) {
			if err != nil || seen[l.Domain] || l != held[l.Domain] {
				return fmt.Errorf("yields %+v, %v", l, err)
			}
			seen[l.Domain] = true
			heir, err := s.Reclaim(ctx, l.Domain, l.Token)
			if err != nil || heir.Token <= l.Token {
				return fmt.Errorf("Reclaim(%s) = %+v, %v", l.Domain, heir, err)
			}
			for _, want := range []lease.Failure{{Status: lease.RetryScheduled, RetryCount: 1},
				{Status: lease.GiveUpNoBacklog, RetryCount: 1}} {
				if f, err := s.Ledger.Fail(ctx, l.Domain, heir.Token); err != nil || f != want {
					return fmt.Errorf("Fail(%s) = %+v, %v, want %+v", l.Domain, f, err, want)
				}
			}
		}
		return sameWalk(s.Held(ctx), nil, holder)
	})
	if len(seen) != many {
		s.Fatalf("Held yields %d leases, want %d", len(seen), many)
	}
}

func wholeWalks(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	held, ready := s.crowd()
	s.within("Held", func() error { return sameWalk(s.Held(ctx), held, holder) })
	s.within("Ready", func() error { return sameWalk(s.Ready(ctx), ready, waiter) })
}

func wideCompact(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	for i := range many {
		domain := fmt.Sprintf("done %d", i)
		s.succeed(s.try(domain, 3, lease.Acquired), noBacklog)
		s.fails(s.try(domain, 4, lease.Acquired), lease.Failure{Status: lease.GiveUpNoBacklog})
		s.succeed(s.try(domain, 9, lease.Acquired), noBacklog)
	}
	s.compacts(5)
	for i := range many {
		domain := fmt.Sprintf("done %d", i)
		if v := s.look(domain); v.Processed != 1 || v.Failed != 0 || v.Floor != 5 {
			s.Fatalf("view %+v", v)
		}
		for _, offset := range []int64{2, 4} {
			if a, err := s.TryAcquire(ctx, domain, offset); err != nil || a.Status != lease.AlreadyProcessed || !a.BelowFloor {
				s.Fatalf("TryAcquire(%s, %d) = %+v, %v, want ALREADY_PROCESSED below the floor", domain, offset, a, err)
			}
		}
		s.try(domain, 9, lease.AlreadyProcessed)
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
	held, ready := s.crowd()
	s.within("a break in Held", func() error { return leaves(s.Held(ctx)) })
	s.within("a break in Ready", func() error { return leaves(s.Ready(ctx)) })
	s.within("calls after a break", func() error {
		for domain, l := range held {
			if _, err := s.Succeed(ctx, domain, l.Token); err != nil {
				return err
			}
		}
		for domain := range ready {
			if a, err := s.AcquireNext(ctx, domain); err != nil || a.Status != lease.Acquired {
				return fmt.Errorf("AcquireNext(%s) = %+v, %v", domain, a, err)
			}
		}
		return s.Compact(ctx, 0)
	})
}

// cut cancels in the body of a walk. One item may still come, then the error, then nothing.
func cut[T comparable](s session, what string, walk func(context.Context) iter.Seq2[T, error]) {
	s.Helper()
	running, cancel := context.WithCancel(ctx)
	defer cancel()
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
	if items == 0 || ended == nil {
		s.Fatalf("%s, cancelled at its first item, ends after %d with %v", what, items, ended)
	}
}

func cancelledWalks(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	s.crowd()
	cut(s, "Held", s.Held)
	cut(s, "Ready", s.Ready)
}

// refuses requires exactly one error of a walk whose context is done before it begins, and no items.
func refuses[T comparable](s session, what string, walk iter.Seq2[T, error]) {
	s.Helper()
	var none T
	yields := 0
	for item, err := range walk {
		yields++
		if !errors.Is(err, context.Canceled) || item != none {
			s.Fatalf("%s with a done context yields %+v, %v", what, item, err)
		}
	}
	if yields != 1 {
		s.Fatalf("%s with a done context yields %d times, want its error once", what, yields)
	}
}

func doneWalks(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	dead, cancel := context.WithCancel(ctx)
	cancel()
	refuses(s, "Held of nothing", s.Held(dead))
	refuses(s, "Ready of nothing", s.Ready(dead))
	s.crowd()
	refuses(s, "Held", s.Held(dead))
	refuses(s, "Ready", s.Ready(dead))
}
