// SPDX-License-Identifier: Apache-2.0

// The contract at the ends of its ranges: offsets, floors, names, times, long backlogs, many retries.

package leasetest

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/step"
)

func valueScenarios() []check {
	return []check{
		{"OffsetsAreWhole", wholeOffsets},
		{"FloorsAreWhole", wholeFloors},
		{"DomainsAreBytes", names},
		{"AcquiredAtIsWallTime", wallTime},
		{"LongBacklog", longBacklog},
		{"TenRetries", tenRetries},
	}
}

// extremes are offsets in rising order that are equal in 32 bits, in a float64, or in a comparison that subtracts.
func extremes() []int64 {
	return []int64{
		math.MinInt64, math.MinInt64 + 1, -1<<53 - 1, -1 << 53, -1<<32 - 1, -1 << 32, -1<<31 - 1, -1 << 31, -1<<31 + 1, -1, 0, 1,
		1<<31 - 1, 1 << 31, 1<<31 + 1, 1 << 32, 1<<32 + 1, 1 << 53, 1<<53 + 1, math.MaxInt64 - 1, math.MaxInt64,
	}
}

func wholeOffsets(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	wait := extremes()
	for _, offset := range wait {
		s.offers("A", offset, lease.Enqueued)
	}
	if v := s.look("A"); !slices.Equal(v.Backlog, wait) {
		s.Fatalf("%v waiting, want %v", v.Backlog, wait)
	}
	for i, offset := range wait {
		wrong := wait[(i+1)%len(wait)]
		if i+1 < len(wait) {
			_, err := s.TryAcquire(ctx, "A", wrong)
			s.refused("TryAcquire", err, lease.ErrBacklogOrdering,
				&lease.BacklogOrderingError{Domain: "A", Expected: offset, Got: wrong})
		}
		held := s.try("A", offset, lease.Acquired)
		if held.Offset != offset {
			s.Fatalf("lease %+v on %d", held, offset)
		}
		_, err := s.Succeed(ctx, "A", 0)
		s.refused("Succeed", err, lease.ErrTokenMismatch, &lease.TokenMismatchError{Domain: "A", Offset: offset})
		done := lease.LeaseNotFoundError{Domain: "A", Got: held.Token, Status: lease.AlreadyProcessed, Offset: offset}
		switch last := i+1 == len(wait); {
		case last:
			s.succeed(held, noBacklog)
		case i%2 == 0:
			s.succeed(held, lease.Completion{Status: lease.NextHint, Next: wrong})
		default:
			s.fails(held, lease.Failure{Status: lease.GiveUpNextHint, Next: wrong})
			done.Status = lease.AlreadyFailed
		}
		_, err = s.Succeed(ctx, "A", held.Token)
		s.refused("Succeed again", err, lease.ErrLeaseNotFound, &done)
	}
	for i, offset := range wait {
		s.try("A", offset, []lease.Status{lease.AlreadyProcessed, lease.AlreadyFailed}[i%2])
	}
	if v := s.look("A"); v.Processed != (len(wait)+1)/2 || v.Failed != len(wait)/2 {
		s.Fatalf("view %+v of %d offsets", v, len(wait))
	}
}

func wholeFloors(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	s.compacts(math.MinInt64) // its present value
	offsets := extremes()
	for _, offset := range offsets {
		s.succeed(s.try("A", offset, lease.Acquired), noBacklog)
	}
	for i, floor := range offsets {
		s.compacts(floor)
		if v := s.look("A"); v.Floor != floor || v.Processed != len(offsets)-i {
			s.Fatalf("at the floor %d: %+v, want %d processed", floor, v, len(offsets)-i)
		}
		for j, offset := range offsets {
			a, err := s.TryAcquire(ctx, "A", offset)
			if err != nil || a.Status != lease.AlreadyProcessed || a.BelowFloor != (j < i) {
				s.Fatalf("TryAcquire(A, %d) = %+v, %v at the floor %d", offset, a, err, floor)
			}
		}
		if i > 0 {
			lower := offsets[i-1]
			s.refused("Compact", s.Compact(ctx, lower), lease.ErrFloor, &step.FloorError{Floor: floor, Got: lower})
			s.try("B", lower, lease.AlreadyProcessed)
		}
		s.succeed(s.try("B", floor, lease.Acquired), noBacklog)
	}
}

// names tests near-identical names, which are different domains.
func names(t testing.TB, open Open) {
	long := strings.Repeat("x", 1<<10-1)
	domains := []string{
		"a", "A", "a ", " a", "a\n", "a/b", "a.b", "a_b", "a-b", "a%b", "a:b", "a/", "a//b", "ab", "a*", "a>", "a'", `a"`,
		`a\`, "a%2Fb", "a\x00b", "a\x00", "\x00",
		"\xff", "\xfe", "\ufffd", "\u00e9", "e\u0301", "e", "0", "00", " ", long, long + "1", long + "2",
	}
	s := start(t, open, lease.Config{})
	held := map[string]lease.Lease{}
	for i, domain := range domains {
		l := s.try(domain, int64(i), lease.Acquired)
		if l.Domain != domain || l.Offset != int64(i) {
			s.Fatalf("lease %+q on %+q, %d", l.Domain, domain, l.Offset)
		}
		held[domain] = l
		s.try(domain, 1000+int64(i), lease.Enqueued)
	}
	s.within("Held", func() error { return sameWalk(s.Held(ctx), held, holder) })
	ready := map[string]lease.Head{}
	for i, domain := range domains {
		waits := 1000 + int64(i)
		v := s.look(domain)
		if v.Domain != domain || v.Lease == nil || *v.Lease != held[domain] || !slices.Equal(v.Backlog, []int64{waits}) {
			s.Fatalf("%+q: view %+v", domain, v)
		}
		s.succeed(held[domain], lease.Completion{Status: lease.NextHint, Next: waits})
		ready[domain] = lease.Head{Domain: domain, Offset: waits}
	}
	s.within("Ready", func() error { return sameWalk(s.Ready(ctx), ready, waiter) })
}

// clockMargin is the largest accepted difference between an engine's clock and this one.
const clockMargin = time.Hour

func wallTime(t testing.TB, open Open) {
	s := start(t, open, lease.Config{MaxRetries: 2})
	grant := func(domain string, next bool) lease.Lease {
		t.Helper()
		var a lease.Acquisition
		var err error
		before := time.Now()
		if next {
			a, err = s.AcquireNext(ctx, domain)
		} else {
			a, err = s.TryAcquire(ctx, domain, 1)
		}
		after := time.Now()
		if err != nil || a.Status != lease.Acquired {
			s.Fatalf("%s: %+v, %v", domain, a, err)
		}
		at := a.Lease.AcquiredAt
		if at.Before(before.Add(-clockMargin)) || at.After(after.Add(clockMargin)) {
			s.Fatalf("acquired at %v, called between %v and %v", at, before, after)
		}
		return a.Lease
	}
	s.succeed(s.try("next", 0, lease.Acquired), noBacklog)
	s.offers("next", 1, lease.Enqueued)
	for _, domain := range []string{"try", "next"} {
		first := grant(domain, domain == "next")
		same := func(what string, l lease.Lease) {
			t.Helper()
			switch at := l.AcquiredAt; {
			case at != at.Round(0): // == compares more than Equal
				s.Fatalf("%s: AcquiredAt %v has a monotonic reading", what, at)
			case at.Location() != time.UTC:
				s.Fatalf("%s: AcquiredAt %v, want UTC", what, at)
			case !at.Equal(first.AcquiredAt):
				s.Fatalf("%s: AcquiredAt %v, want %v", what, at, first.AcquiredAt)
			}
		}
		seen := func(when string) {
			t.Helper()
			same("TryAcquire again "+when, s.try(domain, 1, lease.AlreadyAcquired))
			same("Inspect "+when, *s.look(domain).Lease)
			for l, err := range s.Held(ctx) {
				if err != nil {
					s.Fatalf("Held: %v", err)
				}
				if l.Domain == domain {
					same("Held "+when, l)
				}
			}
		}
		same("the grant", first)
		seen("at first")
		s.fails(first, lease.Failure{Status: lease.RetryScheduled, RetryCount: 1})
		seen("after Fail")
		heir, err := s.Reclaim(ctx, domain, first.Token)
		if err != nil {
			s.Fatalf("Reclaim: %v", err)
		}
		same("Reclaim", heir)
		seen("after Reclaim")
	}
}

func longBacklog(t testing.TB, open Open) {
	length := 1500
	if testing.Short() {
		length = 300
	}
	s := start(t, open, lease.Config{})
	// 7919 is prime and greater than length, so the offsets differ and arrive in mixed order.
	offset := func(i int) int64 { return int64(i) * 3001 % 7919 }
	held := s.try("A", offset(0), lease.Acquired)
	var wait []int64
	for i := 1; i < length; i++ {
		wait = append(wait, offset(i))
		if i%2 == 0 {
			s.offers("A", offset(i), lease.Enqueued)
		} else {
			s.try("A", offset(i), lease.Enqueued)
		}
	}
	if v := s.look("A"); !slices.Equal(v.Backlog, wait) {
		s.Fatalf("%d waiting, want %d in order of arrival", len(v.Backlog), len(wait))
	}
	for _, next := range wait {
		s.succeed(held, lease.Completion{Status: lease.NextHint, Next: next})
		a, err := s.AcquireNext(ctx, "A")
		if err != nil || a.Status != lease.Acquired || a.Lease.Offset != next {
			s.Fatalf("AcquireNext = %+v, %v, want %d", a, err, next)
		}
		held = a.Lease
	}
	s.succeed(held, noBacklog)
	if v := s.look("A"); v.Processed != length || len(v.Backlog) != 0 {
		s.Fatalf("%d processed and %d waiting, want %d and 0", v.Processed, len(v.Backlog), length)
	}
}

func tenRetries(t testing.TB, open Open) {
	s := start(t, open, lease.Config{MaxRetries: 10})
	held := s.try("A", 1, lease.Acquired)
	for n := 1; n <= 10; n++ {
		s.fails(held, lease.Failure{Status: lease.RetryScheduled, RetryCount: n})
	}
	s.fails(held, lease.Failure{Status: lease.GiveUpNoBacklog, RetryCount: 10})
	s.try("A", 1, lease.AlreadyFailed)
}
