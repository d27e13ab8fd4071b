// SPDX-License-Identifier: Apache-2.0

// Pools that tell: what a reading may do to the limit, and what it does.

package control_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/monitor"
)

// C14: a pool with room, one that nobody waits for, and one whose reading is bad never lower the limit: it is no lower than it
// was, or than it would be without the pool.
func TestPropertySilenceLowersNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := configs(t)
		with, without := mustNew(t, cfg), mustNew(t, cfg)
		samples, now := history(t)
		before := with.Step(monitor.Sample{At: epoch})
		without.Step(monitor.Sample{At: epoch})
		for _, s := range samples {
			before = with.Step(s)
			without.Step(s)
		}
		s := calm(now) // so that the processors lower nothing
		s.Service = plausible(t, now).Service
		alone := without.Step(s)
		r := monitor.PoolReading{Name: "a"}
		switch rapid.IntRange(0, 2).Draw(t, "silence") {
		case 0:
			r.PoolStats = monitor.PoolStats{InUse: rapid.IntRange(0, 9).Draw(t, "in use"), Max: 10}
		case 1:
			r.PoolStats = monitor.PoolStats{
				InUse: rapid.IntRange(0, 10).Draw(t, "in use"), Max: 10, Waiting: monitor.Reading{OK: true},
			}
		default:
			r.Problem = "blocked"
		}
		s.Pools = []monitor.PoolReading{r}
		d := with.Step(s)
		if why := fmt.Sprint(d.Reasons); strings.Contains(why, "pool_unreadable: a: blocked (hold)") != (r.Problem != "") &&
			!strings.Contains(why, "no_information") {
			t.Fatalf("C14: %+v, and the reasons are %s", r, why)
		}
		if d.TargetConcurrency < min(before.TargetConcurrency, alone.TargetConcurrency) {
			t.Fatalf(
				"C14: a pool that tells no queue lowers the limit from %d to %d; without it: %d; %+v %v",
				before.TargetConcurrency, d.TargetConcurrency, alone.TargetConcurrency, r, d.Reasons,
			)
		}
	})
}

// C14: of two readings of a full pool the one with more that wait never gives the higher limit, and no reading a limit below Min.
func TestPropertyMonotoneInWhatWaits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := configs(t)
		one, other := mustNew(t, cfg), mustNew(t, cfg)
		samples, now := history(t)
		for _, s := range samples {
			one.Step(s)
			other.Step(s)
		}
		s := plausible(t, now)
		few := rapid.Float64Range(0, 100).Draw(t, "few")
		many := few + rapid.Float64Range(0, 1e6).Draw(t, "more")
		most := rapid.IntRange(0, 20).Draw(t, "max")
		waiting := func(n float64) []monitor.PoolReading {
			return []monitor.PoolReading{
				{Name: "a", PoolStats: monitor.PoolStats{InUse: most, Max: most, Waiting: monitor.Reading{Value: n, OK: true}}},
			}
		}
		s.Pools = waiting(few)
		better := one.Step(s)
		if most == 0 && !strings.Contains(fmt.Sprint(better.Reasons), "pool_full") {
			return // a pool that does not tell its size is full only if many wait, in proportion to what runs
		}
		s.Pools = waiting(many)
		worse := other.Step(s)
		if worse.TargetConcurrency > better.TargetConcurrency || worse.TargetConcurrency < max(cfg.Min, 1) {
			t.Fatalf(
				"C14: target %d while %v wait, %d while %v wait, Min %d",
				better.TargetConcurrency, few, worse.TargetConcurrency, many, cfg.Min,
			)
		}
	})
}

// pooled is a service of which every task holds one of ten connections for a part of its time, with samples from a number on, as
// many as asked; what runs beyond them waits, and the rest is in use.
func pooled(c *control.Controller, from, samples, running int, each float64, exact bool) (target int, why string) {
	for i := range samples {
		need := int(math.Round(each * float64(running)))
		r := monitor.PoolReading{Name: "orders-db", PoolStats: monitor.PoolStats{InUse: min(need, 10), Max: 10}}
		if exact {
			r.Waiting = monitor.Reading{Value: float64(max(need-10, 0)), OK: true}
		}
		s := calm(epoch.Add(time.Duration(from+i) * 100 * time.Millisecond))
		s.Service = monitor.Service{
			Count: 8, Throughput: 80, Concurrency: float64(running), Running: running, P50: 100 * time.Millisecond,
		}
		for k := range 8 {
			s.Service.Times[k] = 100 * time.Millisecond
		}
		s.Pools = []monitor.PoolReading{r}
		d := c.Step(s)
		target, why = d.TargetConcurrency, d.Reasons[len(d.Reasons)-1].String()
	}
	return target, why
}

// A full pool of ten is cut to what it has enough for, at the first sample, and the reason says what a reader needs.
func TestFullPoolCutsAtOnce(t *testing.T) {
	for _, exact := range []bool{true, false} {
		c := mustNew(t, control.Config{Processors: 4, Initial: 64})
		c.Step(monitor.Sample{At: epoch})
		target, why := pooled(c, 1, 1, 64, 1, exact)
		if target != 11 {
			t.Errorf("exact %v: limit %d for ten connections", exact, target)
		}
		if want := "pool_full: orders-db: 10 of 10 in use, 54 wait 680ms (tighten)"; why != want {
			t.Errorf("exact %v: %q, want %q", exact, why, want)
		}
	}
}

// A task that needs a connection for half of its time lets twice as many run.
func TestPoolThatHalfOfTheTimeIsNeeded(t *testing.T) {
	c := mustNew(t, control.Config{Processors: 4, Initial: 16})
	c.Step(monitor.Sample{At: epoch})
	pooled(c, 1, 20, 16, 0.5, false)
	if target, why := pooled(c, 21, 1, 60, 0.5, false); target < 20 || target > 28 || !strings.Contains(why, "pool_full") {
		t.Errorf("limit %d (%s), although 20 tasks use ten connections", target, why)
	}
}

// A full pool whose connections may all be held by calls that hang lowers nothing: those who do not use it go on.
func TestPoolThatHangs(t *testing.T) {
	c := mustNew(t, control.Config{Processors: 4, Initial: 16})
	d := c.Step(monitor.Sample{At: epoch})
	for i := range 50 {
		s := calm(epoch.Add(time.Duration(i+1) * 100 * time.Millisecond))
		s.Service = monitor.Service{Concurrency: 30, Running: 30, Long: 20, Count: 1, Throughput: 10, P50: time.Millisecond}
		s.Service.Times[0] = time.Millisecond
		s.Pools = []monitor.PoolReading{
			{Name: "orders-db", PoolStats: monitor.PoolStats{InUse: 10, Max: 10, Waiting: monitor.Reading{Value: 10, OK: true}}},
		}
		d = c.Step(s)
	}
	if d.TargetConcurrency < 36 {
		t.Errorf("C14: limit %d beside 20 calls that hang: %v", d.TargetConcurrency, d.Reasons)
	}
}

// What is parked needs no connection, and takes nothing of the limit for the others.
func TestParkedBesideAPool(t *testing.T) {
	c, now := mustNew(t, control.Config{Processors: 2, Initial: 100}), clock{}
	d := begin(c)
	for range 100 {
		s := now.next(quiet())
		s.Service = monitor.Service{Concurrency: 20, Running: 220, Parked: 200, Count: 20, Throughput: 200}
		s.Pools = []monitor.PoolReading{{Name: "db", PoolStats: monitor.PoolStats{
			InUse: 10, Max: 10, Waiting: monitor.Reading{Value: 10, OK: true},
		}}}
		d = c.Step(s)
	}
	if d.TargetConcurrency < 9 || d.TargetConcurrency > 20 {
		t.Errorf("C14: the limit is %d beside 200 that are parked, for ten connections: %v", d.TargetConcurrency, d.Reasons)
	}
}
