// SPDX-License-Identifier: Apache-2.0

// What a Caller promises, beside a naive model that remembers every event.

package retry_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/retry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tb is what a *testing.T and a script in a bubble are.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
}

// failure ends a script in a bubble: rapid must hear of it outside.
type failure string

func (failure) Helper()                           {}
func (failure) Fatalf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

func mustNew(t tb, cfg retry.Config) *retry.Caller {
	t.Helper()
	c, err := retry.New(cfg)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return c
}

const second, slice = time.Second, 200 * time.Millisecond

// model is a list of what happened.
type model struct {
	cfg             retry.Config
	began           time.Time
	firsts, retries []time.Time
	requests        map[decision.Priority][]request
}

type request struct {
	at       time.Time
	accepted bool
}

func since(all []time.Time, from time.Time) (n int) {
	for _, at := range all {
		if at.After(from) {
			n++
		}
	}
	return n
}

// extra judges whether an attempt beyond the first was rightly started, or rejected by the budget. Of exactly the ten seconds up
// to it, these attempts are at most the greater of floor and share. Where one is rejected, windows that differ by a slice would
// have rejected it as well.
func (m *model) extra(t tb, granted bool) {
	t.Helper()
	now := time.Now()
	allowed := func(firsts int) float64 { return max(float64(m.cfg.MinRetries), m.cfg.Ratio*float64(firsts)) }
	if granted {
		m.retries = append(m.retries, now)
		if retries, firsts := since(
			m.retries, now.Add(-10*second),
		), since(m.firsts, now.Add(-10*second)); float64(retries) > allowed(firsts) {
			t.Fatalf("R1: %d retries to %d first attempts in ten seconds", retries, firsts)
		}
		return
	}
	if retries, firsts := since(m.retries, now.Add(-10*second-slice-1)), since(m.firsts, now.Add(-10*second+
		slice)); float64(retries+1) <= allowed(firsts) {
		t.Fatalf("R1: rejected, with %d retries to %d first attempts", retries, firsts)
	}
}

// probability is the SRE book's, between its bounds: over the slices that reach back by a second, or as far within ten as it
// takes to see ten requests.
func (m *model) probability(p decision.Priority) (of float64, requests, accepted int64) {
	number := func(at time.Time) int64 { return int64(at.Sub(m.began) / slice) }
	now := number(time.Now())
	for back := int64(0); back <= 50 && (back <= 5 || requests < 10); back++ {
		for _, r := range m.requests[p] {
			if number(r.at) == now-back {
				requests++
				if r.accepted {
					accepted++
				}
			}
		}
	}
	if requests < 10 {
		return 0, requests, accepted
	}
	return min(0.8, max(0, float64(requests-2*accepted)/float64(requests+1))), requests, accepted
}

func (m *model) request(p decision.Priority, accepted bool) {
	m.requests[p] = append(m.requests[p], request{time.Now(), accepted})
}

// burst is some calls at one instant.
type burst struct {
	pause           time.Duration
	priority        decision.Priority
	draw            float64
	calls, accepted int // of five
	hedge           bool
	after, left     time.Duration
}

// Calls come in bursts and after pauses, of two priorities; some are accepted, some are tried again, some are hedged.
func TestPropertyMachine(t *testing.T) {
	var total retry.Stats
	rapid.Check(t, func(rt *rapid.T) {
		cfg := retry.Config{
			Attempts:   rapid.IntRange(2, 4).Draw(rt, "attempts"),
			Ratio:      rapid.SampledFrom([]float64{0.01, 0.1, 0.5, 1}).Draw(rt, "ratio"),
			MinRetries: rapid.IntRange(1, 3).Draw(rt, "floor"),
			Backoff:    50 * time.Millisecond,
		}
		script := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) burst {
			return burst{
				pause: rapid.SampledFrom([]time.Duration{
					0, 1,
					time.Millisecond, 150 * time.Millisecond, 990 * time.Millisecond, second, 3 * second, 9 * second, 40 * second,
				}).Draw(rt, "pause"),
				priority: rapid.SampledFrom([]decision.Priority{decision.Normal, decision.Critical}).Draw(rt, "priority"),
				draw:     rapid.SampledFrom([]float64{0, 0.3, 0.79999, 0.8, 0.99, math.NaN(), -1, 2}).Draw(rt, "draw"),
				calls:    rapid.IntRange(1, 30).Draw(rt, "calls"),
				accepted: rapid.IntRange(0, 4).Draw(rt, "accepted"),
				hedge:    rapid.Bool().Draw(rt, "hedge"),
				after:    rapid.SampledFrom([]time.Duration{0, 0, 0, second, 11 * second, -1}).Draw(rt, "after"),
				left: rapid.SampledFrom([]time.Duration{0, time.Millisecond, 60 * time.Millisecond, 5 * second}).Draw(
					rt, "left",
				),
			}
		}), 1, 25).Draw(rt, "script")
		var failed any
		synctest.Test(t, func(*testing.T) {
			defer func() { failed = recover() }()
			var draw float64
			cfg.Rand = func() float64 { return draw }
			c := mustNew(failure(""), cfg)
			m := &model{cfg: cfg, began: time.Now(), requests: map[decision.Priority][]request{}}
			for _, b := range script {
				time.Sleep(b.pause)
				draw = b.draw
				for i := range b.calls {
					m.call(failure(""), c, b.priority, b.draw, i%5 < b.accepted, b.hedge, b.after, b.left)
				}
			}
			s := c.Stats()
			total.Throttled += s.Throttled
			total.Retries += s.Retries
			total.Hedges += s.Hedges
			total.NoBudget += s.NoBudget
			total.NoTime += s.NoTime
		})
		if failed != nil {
			rt.Fatal(failed)
		}
	})
	for _, n := range []uint64{total.Throttled, total.Retries, total.Hedges, total.NoBudget, total.NoTime} {
		if n < 10 {
			t.Errorf("not everything has happened: %+v", total)
		}
	}
}

func (m *model) call(t tb, c *retry.Caller, p decision.Priority, draw float64, accepted, hedge bool, after, left time.Duration) {
	used := min(1, max(0, draw))
	if math.IsNaN(draw) {
		used = 0
	}
	probability, requests, ok := m.probability(p)
	call, err := c.Begin(retry.Target{Priority: p})
	if reject := probability > 0 && used < probability; reject != (err != nil) {
		t.Fatalf("R4: %d of %d accepted, drawn %v: %v", ok, requests, draw, err)
	}
	if err != nil {
		want := fmt.Sprintf(
			"retry: throttled: of the last %d requests of priority %s, %d were accepted; %.0f %% are not sent",
			requests, p, ok, 100*probability,
		)
		if !errors.Is(err, retry.ErrThrottled) || err.Error() != want {
			t.Fatalf("R4: %v; want %s", err, want)
		}
		m.request(p, false)
		return
	}
	m.firsts = append(m.firsts, time.Now())
	made := 1
	if hedge {
		made += m.hedge(t, c, &call, p, used, accepted)
	}
	for range 5 {
		m.request(p, accepted)
		call.Ended(p, map[bool]retry.Outcome{true: retry.Accepted, false: retry.Rejected}[accepted])
		if accepted {
			return
		}
		var deadline time.Time
		if left > 0 {
			deadline = time.Now().Add(left)
		}
		before, throttled := c.Stats(), m.rejects(p, used)
		wait, granted := call.Retry(after, deadline)
		stats := c.Stats()
		switch {
		case made == m.cfg.Attempts:
			if granted || stats != before {
				t.Fatalf("R7: %d attempts are made: %v, %+v", made, granted, stats)
			}
		case after < 0:
			if granted || stats.NoTime != before.NoTime+1 {
				t.Fatalf("R5: the server said never: %v, %+v", granted, stats)
			}
		case granted:
			if stats.Retries != before.Retries+1 || throttled {
				t.Fatalf("R4: %+v, throttled: %v", stats, throttled)
			}
			if wait < after || wait > 10*second || wait > after+50*time.Millisecond<<(made-1) || left > 0 && wait >= left {
				t.Fatalf("R5: waits %s, asked to wait %s, %s are left", wait, after, left)
			}
			m.extra(t, true)
			made++
		case stats.NoTime > before.NoTime:
			if most := after + 50*time.Millisecond<<(made-1); most <= 10*second && (left == 0 || most < left) {
				t.Fatalf("R5: no time to wait %s at most, though %s are left", most, left)
			}
		case throttled:
			if stats != before {
				t.Fatalf("R4: throttled, and counted: %+v", stats)
			}
		case stats.NoBudget == before.NoBudget+1:
			m.extra(t, false)
		default:
			t.Fatalf("R1: rejected, and nothing is counted: %+v", stats)
		}
		if !granted {
			return
		}
	}
}

func (m *model) rejects(p decision.Priority, draw float64) bool {
	probability, _, _ := m.probability(p)
	return probability > 0 && draw < probability
}

// hedge is one attempt more, or none.
func (m *model) hedge(t tb, c *retry.Caller, call *retry.Call, p decision.Priority, draw float64, accepted bool) int {
	lower := map[decision.Priority]decision.Priority{decision.Normal: decision.Background, decision.Critical: decision.High}[p]
	before, throttled := c.Stats(), m.rejects(lower, draw)
	with, granted := call.Hedge()
	stats := c.Stats()
	switch {
	case granted:
		if with != lower || throttled || stats.Hedges != before.Hedges+1 {
			t.Fatalf("R7: a hedge of %s, throttled: %v: %s, %+v", p, throttled, with, stats)
		}
		m.extra(t, true)
		m.request(with, accepted)
		call.Ended(with, map[bool]retry.Outcome{true: retry.Accepted, false: retry.Rejected}[accepted])
		return 1
	case stats.NoBudget > before.NoBudget == throttled:
		t.Fatalf("R4: throttled: %v, %+v", throttled, stats)
	case !throttled:
		m.extra(t, false)
	}
	return 0
}

// However many ask at once, and whenever: the budget is one.
func TestBudgetUnderConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mustNew(t, retry.Config{Attempts: 10, Backoff: 1})
		m := &model{cfg: retry.Config{Ratio: 0.1, MinRetries: 1}}
		for range 30 {
			var firsts, retries atomic.Int64
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					for i := range 40 {
						call, err := c.Begin(retry.Target{Priority: decision.Priority(i % 7)})
						if err != nil {
							continue
						}
						firsts.Add(1)
						for range 9 {
							if _, ok := call.Retry(0, time.Time{}); ok {
								retries.Add(1)
							}
						}
					}
				})
			}
			all.Wait() // time stands still
			now := time.Now()
			m.firsts = append(m.firsts, slices.Repeat([]time.Time{now}, int(firsts.Load()))...)
			m.retries = append(m.retries, slices.Repeat([]time.Time{now}, int(retries.Load()))...)
			if n := since(m.retries, now.Add(-10*second)); float64(n) > 0.1*float64(since(m.firsts, now.Add(-10*second))) {
				t.Fatalf("R1: %d retries", n)
			}
			time.Sleep(990 * time.Millisecond)
		}
		if s := c.Stats(); float64(s.Retries) > 0.1*float64(s.Calls) || float64(s.Retries) < 0.09*float64(s.Calls) {
			t.Errorf("R1: %+v", s)
		}
	})
}

// A rare caller's one retry in ten seconds: not again before they are over, wherever slices begin, and soon after.
func TestTenSecondsAreTen(t *testing.T) {
	for phase := time.Duration(0); phase < slice; phase += 7 * time.Millisecond {
		for _, c := range []struct {
			after time.Duration
			want  bool
		}{{10*second - 1, false}, {10*second - 50*time.Millisecond, false}, {9*second + slice, false}, {10*second +
			slice, true}} {
			synctest.Test(t, func(t *testing.T) {
				caller := mustNew(t, retry.Config{})
				time.Sleep(phase)
				for _, want := range []bool{true, c.want} {
					call, err := caller.Begin(retry.Target{Priority: decision.Normal})
					if err != nil {
						t.Fatal(err)
					}
					if _, got := call.Retry(0, time.Time{}); got != want {
						t.Errorf("R1: phase %s, after %s: %v", phase, c.after, got)
					}
					time.Sleep(c.after)
				}
			})
		}
	}
}

// First attempts earn retries for ten seconds, and from then on none: only the floor's is left.
func TestFirstAttemptsEarnForTenSeconds(t *testing.T) {
	for phase := time.Duration(0); phase < slice; phase += 7 * time.Millisecond {
		for after, want := range map[time.Duration]int{10*second - slice: 10, 10 * second: 1} {
			synctest.Test(t, func(t *testing.T) {
				caller := mustNew(t, retry.Config{})
				time.Sleep(phase)
				begin := func() retry.Call {
					call, err := caller.Begin(retry.Target{Priority: decision.Normal})
					if err != nil {
						t.Fatal(err)
					}
					return call
				}
				for range 100 {
					begin()
				}
				time.Sleep(after)
				got := 0
				for range 9 {
					call := begin()
					for range 2 {
						if _, ok := call.Retry(0, time.Time{}); ok {
							got++
						}
					}
				}
				if got != want {
					t.Errorf("R1: phase %s, after %s: %d retries, want %d", phase, after, got, want)
				}
			})
		}
	}
}

// Forty seconds of total rejection: at most 1.1 attempts for each call that is asked for, at 1, 5 and 5000 a second; retries are
// a tenth of what is sent, or one in ten seconds; a part of the calls is always sent.
func TestTotalRejection(t *testing.T) {
	for _, rate := range []int{0, 1, 5, 5000} {
		synctest.Test(t, func(t *testing.T) {
			c := mustNew(t, retry.Config{Rand: rand.New(rand.NewPCG(1, uint64(rate))).Float64})
			gap, calls := 20*second, 30
			if rate > 0 {
				gap, calls = second/time.Duration(rate), 40*rate
			}
			for range calls {
				time.Sleep(gap)
				call, err := c.Begin(retry.Target{Priority: decision.Normal})
				if err != nil {
					continue
				}
				call.Ended(decision.Normal, retry.Rejected)
				for {
					if _, ok := call.Retry(0, time.Time{}); !ok {
						break
					}
					call.Ended(decision.Normal, retry.Rejected)
				}
			}
			s := c.Stats()
			switch {
			case rate == 0:
				if s.Retries != s.Calls || s.Throttled != 0 {
					t.Errorf("a rare caller: %+v", s)
				}
			case float64(s.Retries) > max(0.1*float64(s.Calls), 5) || s.Retries == 0,
				float64(s.Calls+s.Retries) > 1.1*float64(s.Calls+s.Throttled):
				t.Errorf("%d a second: %+v", rate, s)
			case rate > 1 && (s.Throttled < s.Calls || s.Throttled > 5*s.Calls):
				t.Errorf("%d a second: %+v", rate, s)
			}
		})
	}
}

// What one priority is rejected says nothing about another, and what half accepts is not throttled.
func TestEachPriorityByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mustNew(t, retry.Config{Rand: func() float64 { return 0 }})
		for range 100 {
			if call, err := c.Begin(retry.Target{Priority: decision.Background}); err == nil {
				call.Ended(decision.Background, retry.Rejected)
			}
		}
		for i := range 100 {
			call, err := c.Begin(retry.Target{Priority: decision.Critical})
			if err != nil {
				t.Fatal(err)
			}
			call.Ended(decision.Critical, retry.Outcome(1+i%2))
		}
		s := c.Stats()
		if s.Throttled != 90 || s.Calls != 110 {
			t.Errorf("R4: %+v", s)
		}
		_, err := c.Begin(retry.Target{Priority: decision.Background})
		if want := "retry: throttled: of the last 100 requests of priority background, 0 were accepted; 80 % are not sent"; err == nil || err.Error() != want {
			t.Errorf("R4: %v", err)
		}
	})
}

// What says nothing about the server changes nothing, and slow calls under way are not rejected ones.
func TestUnknownAndUnfinishedCountNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mustNew(t, retry.Config{Rand: func() float64 { return 0 }})
		for i := range 100 {
			call, err := c.Begin(retry.Target{Priority: decision.Normal})
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				call.Ended(decision.Normal, retry.Unknown)
			}
		}
		if s := c.Stats(); s != (retry.Stats{Calls: 100}) {
			t.Errorf("R8: %+v", s)
		}
	})
}

// A stranger who lowers his priority to whatever there is takes no dependency's place in the table.
func TestPrioritiesFillNoTable(t *testing.T) {
	c := mustNew(t, retry.Config{Rand: func() float64 { return 0 }})
	ask := func(dependency string, p decision.Priority, o retry.Outcome) error {
		call, err := c.Begin(retry.Target{Dependency: dependency, Priority: p})
		call.Ended(p, o)
		return err
	}
	for i := range 129 * 8 {
		_ = ask(fmt.Sprint(i%8), decision.Priority(-i/8), retry.Accepted)
	}
	for range 20 {
		_ = ask("broken", decision.Normal, retry.Rejected)
	}
	if err := ask("new", decision.Normal, retry.Accepted); err != nil {
		t.Errorf("R4: %v", err)
	}
}

func TestInvalid(t *testing.T) {
	for field, cfg := range map[string]retry.Config{
		"Attempts": {Attempts: 11}, "Ratio": {Ratio: math.NaN()}, "MinRetries": {MinRetries: 1001},
		"Backoff": {Backoff: -1},
	} {
		c, err := retry.New(cfg)
		var invalid *decision.InvalidError
		if c != nil || !errors.Is(err, decision.ErrInvalid) || !errors.As(err, &invalid) ||
			invalid.Field != "retry.Config."+field || !strings.Contains(err.Error(), invalid.Allowed) {
			t.Errorf("%s: %v, %v", field, c, err)
		}
	}
	var none *retry.Caller
	for _, c := range []*retry.Caller{none, {}} {
		if _, err := c.Begin(retry.Target{Priority: decision.Normal}); !errors.Is(err, decision.ErrInvalid) {
			t.Error(err)
		}
		if s := c.Stats(); s != (retry.Stats{}) {
			t.Errorf("%+v", s)
		}
	}
	var call retry.Call
	call.Ended(decision.Normal, retry.Accepted)
	if _, ok := call.Retry(0, time.Time{}); ok {
		t.Error("a call of nobody was granted a retry")
	}
	if _, ok := call.Hedge(); ok {
		t.Error("a call of nobody was granted a hedge")
	}
}

func TestNothingAllocates(t *testing.T) {
	c := mustNew(t, retry.Config{})
	if n := testing.AllocsPerRun(1000, func() {
		call, _ := c.Begin(retry.Target{Dependency: "payments", Path: "/charge", Priority: decision.Normal})
		call.Ended(decision.Normal, retry.Accepted)
		call.Retry(0, time.Time{})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
