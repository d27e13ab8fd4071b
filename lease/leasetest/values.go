// SPDX-License-Identifier: Apache-2.0

// The contract at the ends of its ranges: offsets, floors, names, times, long backlogs, many retries.

package leasetest

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/model"
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
	s.look()
	for i, offset := range wait {
		if wrong := i + 1; wrong < len(wait) {
			s.do(model.Call{Op: step.TryAcquire, Domain: "A", Offset: wait[wrong]}, lease.ErrBacklogOrdering)
		}
		held := s.try("A", offset, lease.Acquired)
		s.do(model.Call{Op: step.Succeed, Domain: "A"}, lease.ErrTokenMismatch)
		if i%2 == 0 {
			s.succeed(held)
		} else {
			s.fails(held, lease.GiveUpNextHint)
		}
		s.do(model.Call{Op: step.Succeed, Domain: "A", Token: held.Token}, lease.ErrLeaseNotFound)
	}
	for i, offset := range wait {
		s.try("A", offset, []lease.Status{lease.AlreadyProcessed, lease.AlreadyFailed}[i%2])
	}
	s.look()
}

func wholeFloors(t testing.TB, open Open) {
	s := start(t, open, lease.Config{})
	s.compacts(math.MinInt64) // its present value
	offsets := extremes()
	for _, offset := range offsets {
		s.succeed(s.try("A", offset, lease.Acquired))
	}
	for i, floor := range offsets {
		s.compacts(floor)
		s.look()
		for _, offset := range offsets {
			s.try("A", offset, lease.AlreadyProcessed)
		}
		if i > 0 {
			lower := offsets[i-1]
			s.do(model.Call{Op: step.Compact, Offset: lower}, lease.ErrFloor)
			s.try("B", lower, lease.AlreadyProcessed)
		}
		s.succeed(s.try("B", floor, lease.Acquired))
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
	var held []lease.Lease
	for i, domain := range domains {
		held = append(held, s.try(domain, int64(i), lease.Acquired))
		s.try(domain, 1000+int64(i), lease.Enqueued)
	}
	s.look()
	for _, l := range held {
		s.succeed(l)
	}
	s.look()
}

// clockMargin is the largest accepted difference between an engine's clock and this one.
const clockMargin = time.Hour

// wallTime: a lease keeps the time of its grant, which the model compares to the bit.
func wallTime(t testing.TB, open Open) {
	s := start(t, open, lease.Config{MaxRetries: 2})
	s.offers("next", 1, lease.Enqueued)
	for _, domain := range []string{"try", "next"} {
		before := time.Now()
		var held lease.Lease
		if domain == "next" {
			held = s.next(domain)
		} else {
			held = s.try(domain, 1, lease.Acquired)
		}
		switch at := held.AcquiredAt; {
		case at != at.Round(0): // == compares more than Equal
			s.Fatalf("AcquiredAt %v has a monotonic reading", at)
		case at.Location() != time.UTC:
			s.Fatalf("AcquiredAt %v, want UTC", at)
		case at.Before(before.Add(-clockMargin)) || at.After(time.Now().Add(clockMargin)):
			s.Fatalf("acquired at %v, called at %v", at, before)
		}
		s.try(domain, 1, lease.AlreadyAcquired)
		s.fails(held, lease.RetryScheduled)
		s.try(domain, 1, lease.AlreadyAcquired)
		s.do(model.Call{Op: step.Reclaim, Domain: domain, Token: held.Token}, nil)
		s.try(domain, 1, lease.AlreadyAcquired)
		s.look()
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
	for i := 1; i < length; i++ {
		if i%2 == 0 {
			s.offers("A", offset(i), lease.Enqueued)
		} else {
			s.try("A", offset(i), lease.Enqueued)
		}
	}
	s.look()
	for range length - 1 {
		s.succeed(held)
		held = s.next("A")
	}
	s.succeed(held)
	s.look()
}

func tenRetries(t testing.TB, open Open) {
	s := start(t, open, lease.Config{MaxRetries: 10})
	held := s.try("A", 1, lease.Acquired)
	for range 10 {
		s.fails(held, lease.RetryScheduled)
	}
	s.fails(held, lease.GiveUpNoBacklog)
	s.try("A", 1, lease.AlreadyFailed)
}
