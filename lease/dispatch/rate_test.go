// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file holds D10: rates of all and of each domain, held against a naive token bucket in virtual time; and what a Rate must
// not break.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// bucket is a Rate: so many attempts at once, and then one each period.
type bucket struct {
	period time.Duration
	burst  int

	mu    sync.Mutex
	full  time.Time // when it will be full again, if nothing more is taken
	asked int
}

func (b *bucket) Delay(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	return b.delay(now)
}

// times is how often it was asked.
func (b *bucket) times() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked
}

func (b *bucket) delay(now time.Time) time.Duration {
	return b.full.Add(-time.Duration(b.burst-1) * b.period).Sub(now)
}

func (b *bucket) Take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.delay(now) > 0 {
		return false
	}
	if b.full.Before(now) {
		b.full = now
	}
	b.full = b.full.Add(b.period)
	return true
}

// only is the rate of one domain alone.
func only(domain string, rate dispatch.Rate) func(string) dispatch.Rate {
	return func(of string) dispatch.Rate {
		if of == domain {
			return rate
		}
		return nil
	}
}

// attempt is a call of the handler, as the model sees it.
type attempt struct {
	domain       string
	offset       int64
	free         time.Time // when nothing but rates and places kept it
	began, ended time.Time
}

// tokens is how much a bucket holds just before at, which was full once and from which these were taken: the most that any
// explanation allows.
func tokens(taken []time.Time, at time.Time, period time.Duration, burst int) float64 {
	have, last := float64(burst), time.Time{}
	for _, t := range taken {
		if !t.Before(at) {
			break
		}
		if !last.IsZero() {
			have = min(float64(burst), have+float64(t.Sub(last))/float64(period))
		}
		have, last = have-1, t
	}
	if last.IsZero() {
		return have
	}
	return min(float64(burst), have+float64(at.Sub(last))/float64(period))
}

// No attempt begins faster than a rate says, retries and records of other partitions included; none waits without a reason; and
// the order of keys stays.
func TestPropertyNeverFasterNeverIdle(t *testing.T) {
	attempts := 0
	rapid.Check(t, func(rt *rapid.T) {
		var (
			partitions = rapid.IntRange(1, 3).Draw(rt, "partitions")
			keys       = rapid.IntRange(1, 8).Draw(rt, "keys")
			slots      = rapid.IntRange(1, 6).Draw(rt, "places")
			period     = time.Duration(rapid.SampledFrom([]int{0, 1, 7, 40, 300}).Draw(rt,
				"period of all, ms")) * time.Millisecond
			burst     = rapid.IntRange(1, 5).Draw(rt, "burst of all")
			keyPeriod = time.Duration(rapid.SampledFrom([]int{0, 10, 100, 2000}).Draw(rt,
				"period of a key, ms")) * time.Millisecond
			keyBurst = rapid.IntRange(1, 3).Draw(rt, "burst of a key")
			owners   = rapid.IntRange(0, 3).Draw(rt, "owners")
			n        = rapid.IntRange(1, 80).Draw(rt, "records")
			took     = rapid.SliceOfN(rapid.IntRange(0, 90), n, n).Draw(rt, "took, ms")
			fails    = rapid.SliceOfN(rapid.SampledFrom([]int{0, 0, 0, 1, 2}), n, n).Draw(rt, "fails")
			gaps     = rapid.SliceOfN(rapid.SampledFrom([]int{0, 0, 0, 15, 400}), n, n).Draw(rt, "gaps, ms")
			where    = rapid.SliceOfN(rapid.IntRange(0, partitions*keys-1), n, n).Draw(rt, "where")
		)
		const backoff = 50 * time.Millisecond
		var (
			mu      sync.Mutex
			all     []attempt
			free    = map[string]time.Time{} // when the head of a key was free to go
			waiting = map[string][]time.Time{}
		)
		synctest.Test(t, func(t *testing.T) {
			cfg := dispatch.Config{MaxInFlight: slots, Backoff: backoff, MaxBackoff: backoff}
			if period > 0 {
				cfg.Rate = &bucket{period: period, burst: burst}
			}
			if keyPeriod > 0 {
				ofKey := map[string]*bucket{}
				cfg.RateOf = func(domain string) dispatch.Rate {
					mu.Lock()
					defer mu.Unlock()
					if ofKey[domain] == nil {
						ofKey[domain] = &bucket{period: keyPeriod, burst: keyBurst}
					}
					return ofKey[domain]
				}
			}
			if owners > 0 {
				cfg.Owner = func(domain string) string { return fmt.Sprint(int(domain[len(domain)-1]) % owners) }
			}
			cfg.Handler = func(_ context.Context, job dispatch.Job) error {
				var index int
				_, _ = fmt.Sscan(string(job.Record.Payload), &index)
				mu.Lock()
				i := len(all)
				domain := job.Record.Domain
				all = append(all, attempt{domain: domain, offset: job.Record.Offset, free: free[domain], began: time.Now()})
				mu.Unlock()
				time.Sleep(time.Duration(took[index]) * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				now := time.Now()
				all[i].ended = now
				if job.Lease.RetryCount < fails[index] {
					free[domain] = now.Add(backoff)
					return errors.New("on purpose")
				}
				waiting[domain] = waiting[domain][1:]
				if free[domain] = now; len(waiting[domain]) == 0 {
					delete(free, domain)
				}
				return nil
			}
			c := consume(t, cfg)
			var parts []dispatch.Partition
			for i := range partitions {
				parts = append(parts, filled(t, fmt.Sprint("p", i), 0))
				c.give(parts[i])
			}
			synctest.Wait()
			for i := range n {
				time.Sleep(time.Duration(gaps[i]) * time.Millisecond)
				synctest.Wait() // whatever falls due at this instant comes before it
				domain := fmt.Sprint("k", where[i])
				mu.Lock()
				if waiting[domain] = append(waiting[domain], time.Now()); len(waiting[domain]) == 1 {
					free[domain] = time.Now()
				}
				mu.Unlock()
				parts[where[i]%partitions].Source.(*dispatch.Log).Append(domain, fmt.Append(nil, i))
			}
			time.Sleep(time.Hour)
			c.mustStop(t)
		})

		want := n
		for _, f := range fails {
			want += f
		}
		if len(all) != want {
			rt.Fatalf("D10: %d attempts, want %d", len(all), want)
		}
		attempts += want
		var begins []time.Time
		of := map[string][]time.Time{}
		last := map[string]int64{}
		var moments []time.Time
		for _, a := range all {
			begins = append(begins, a.began)
			of[a.domain] = append(of[a.domain], a.began)
			if l, seen := last[a.domain]; seen && a.offset < l {
				rt.Errorf("D1: %d of %s after %d", a.offset, a.domain, l)
			}
			last[a.domain] = a.offset
			moments = append(moments, a.began, a.ended)
		}
		faster := func(what string, begins []time.Time, period time.Duration, burst int) {
			for i := range begins {
				for j := i; j < len(begins) && period > 0; j++ {
					if most := burst + int(begins[j].Sub(begins[i])/period); j-i+1 > most {
						rt.Errorf("D10: %s: %d attempts in %v, want %d at most", what, j-i+1, begins[j].Sub(begins[i]), most)
					}
				}
			}
		}
		faster("all", begins, period, burst)
		for domain, begins := range of {
			faster(domain, begins, keyPeriod, keyBurst)
		}
		slices.SortFunc(moments, time.Time.Compare)
		for _, a := range all {
			// From when it was free until it began, there was something that kept it. Less and less does from one moment to the
			// next, so it is enough to look at the end of each such time.
			for _, m := range append(moments, a.began) {
				if !m.After(a.free) || m.After(a.began) {
					continue
				}
				working := 0
				for _, o := range all {
					if o.began.Before(m) && !o.ended.Before(m) {
						working++
					}
				}
				before := m.Add(-1)
				switch {
				case working >= slots:
				case period > 0 && tokens(begins, m, period, burst)-float64(m.Sub(before))/float64(period) < 1:
				case keyPeriod > 0 && tokens(of[a.domain], m, keyPeriod, keyBurst)-float64(m.Sub(before))/float64(keyPeriod) < 1:
				default:
					rt.Errorf("D10: idle: %d of %s, free since %v, began %v later, and nothing kept it %v after",
						a.offset, a.domain, a.free, a.began.Sub(a.free), m.Sub(a.free))
				}
			}
		}
	})
	t.Logf("%d attempts", attempts)
}

// What waits for a rate holds no place, no lease and no goroutine, and is not asked about until its time has come. Outcomes and
// dead letters are no attempts.
func TestWaitingHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, log := memory(t, 0), fill("slow", "slow", "bad", "bad", "quick", "quick")
		slow := &bucket{period: time.Hour, burst: 1}
		all := &bucket{period: time.Second, burst: 1}
		var letters []time.Time
		r := run(t, dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{
			MaxInFlight: 1, Rate: all,
			RateOf: only("slow", slow),
			Handler: func(_ context.Context, job dispatch.Job) error {
				if job.Record.Domain == "bad" {
					return errors.New("on purpose")
				}
				return nil
			},
			DeadLetter: func(context.Context, dispatch.DeadLetter) error {
				if letters = append(letters, time.Now()); len(letters) == 1 {
					return errors.New("once more")
				}
				return nil
			},
		})
		time.Sleep(10*time.Minute + time.Second/2)
		synctest.Wait()
		for domain, want := range map[string]int{"slow": 1, "quick": 2, "bad": 2} {
			equal(t, domain, len(r.of(domain)), want)
		}
		equal(t, "letters", len(letters), 3)
		equal(t, "D10: between a letter and the next try, whatever the rate", letters[1].Sub(letters[0]), 100*time.Millisecond)
		s := r.Stats()
		equal(t, "working", s.Working, 0)
		equal(t, "pausing", s.Pausing, 1)
		equal(t, "paced", s.Paced, 1)
		for l := range ledger.Held(t.Context()) {
			t.Errorf("D10: held: %+v", l)
		}
		if asked := slow.times(); asked > 30 { // at most once a minute, and for each attempt
			t.Errorf("D10: the rate of slow was asked %d times", asked)
		}
		if asked := all.times(); asked > 30 {
			t.Errorf("D10: the rate of all was asked %d times", asked)
		}
		time.Sleep(time.Hour)
		equal(t, "slow", len(r.of("slow")), 2)
		times, _ := r.at("slow")
		equal(t, "between its attempts", times[1].Sub(times[0]), time.Hour)
		r.mustStop(t)
		equal(t, "committed", r.Stats().Committed, 6)
	})
}

// While the rate of all lets nothing go, who is waiting counts as such; a dead letter goes out; a drain ends at once, and
// starts nothing.
func TestDrainEndsTheWait(t *testing.T) {
	for _, cause := range []error{nil, dispatch.Lost("a", nil)} {
		synctest.Test(t, func(t *testing.T) {
			c := consume(t, dispatch.Config{
				Rate: &bucket{period: time.Hour, burst: 2}, DrainTimeout: time.Hour, CommitEvery: time.Second,
			})
			began := func(what, owner string, want int) {
				t.Helper()
				got, _ := c.by(owner)
				equal(t, "D10: "+what, got, want)
			}
			a, b := filled(t, "a", 3), filled(t, "b", 0)
			takeA := c.give(a)
			c.give(b)
			time.Sleep(time.Minute + time.Second) // not when the rate is asked again
			b.Source.(*dispatch.Log).Append("b", nil)
			time.Sleep(time.Minute)
			synctest.Wait()
			began("a", "a", 2)
			equal(t, "paced", c.Stats()[0].Paced, 1)
			equal(t, "ready", c.Stats()[0].Ready, 1)
			before := time.Now()
			takeA(cause)
			equal(t, "the drain took", time.Since(before), 0)
			for l := range a.Ledger.Held(t.Context()) {
				t.Errorf("D10: held: %+v", l)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			began("a, after it", "a", 2)
			began("b, whose turn it was then", "b", 1)
			c.give(a)
			time.Sleep(time.Hour + time.Second)
			synctest.Wait()
			began("a, taken again", "a", 3)
			c.mustStop(t)
		})
	}
}

// Partitions and owners that wait for the rate of all come to have equally many attempts.
func TestTheRateIsShared(t *testing.T) {
	for _, owner := range []func(string) string{nil, ownerOf} {
		synctest.Test(t, func(t *testing.T) {
			c := consume(t, dispatch.Config{Rate: &bucket{period: time.Second, burst: 1}, Owner: owner})
			one := filled(t, "one", 0)
			for _, name := range []string{"a", "b"} {
				if owner == nil {
					c.give(filled(t, name, 200))
					continue
				}
				for i := range 200 {
					one.Source.(*dispatch.Log).Append(fmt.Sprint(name, "/", i), nil)
				}
			}
			c.give(one)
			time.Sleep(200 * time.Second)
			synctest.Wait()
			for _, name := range []string{"a", "b"} {
				if n, _ := c.by(name); n < 95 || n > 105 {
					t.Errorf("D10: of partitions, %t: %s has had %d of 200", owner == nil, name, n)
				}
			}
			c.mustStop(t)
		})
	}
}

// An attempt that the ledger does not let begin has spent what it took: nobody knows it to be free again, and no attempt may be
// too fast.
func TestSpentWithoutABeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(memory(t, 3), fill("k"))
		p.fails(errLost, "TryAcquire")
		began := time.Now()
		r := run(t, dispatch.Partition{Ledger: p, Source: p}, dispatch.Config{
			Backoff: time.Millisecond, Rate: &bucket{period: 10 * time.Second, burst: 1},
		})
		time.Sleep(15 * time.Second)
		p.fails(nil)
		time.Sleep(time.Minute)
		times, _ := r.at("k")
		equal(t, "attempts", len(times), 1)
		equal(t, "after", times[0].Sub(began), 20*time.Second)
		r.mustStop(t)
	})
}

// Suspects pay too, and one that waits for its rate is not on trial meanwhile.
func TestSuspectsPay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, log := memory(t, 3), fill("a", "b", "c")
		died(t, ledger, "a", "b", "c")
		began := time.Now()
		never := &bucket{period: time.Hour, burst: 1}
		never.Take(began)
		r := run(t, dispatch.Partition{Ledger: ledger, Source: log}, dispatch.Config{
			Rate: &bucket{period: time.Second, burst: 1}, Backoff: time.Nanosecond,
			RateOf: only("a", never),
		})
		time.Sleep(time.Minute)
		var at []time.Duration
		for _, domain := range []string{"b", "c"} {
			times, _ := r.at(domain)
			at = append(at, times[0].Sub(began))
		}
		slices.Sort(at)
		equal(t, "between the two", at[1]-at[0], time.Second)
		equal(t, "a", len(r.of("a")), 0)
		equal(t, "suspects", r.Stats().Suspects, 1)
		time.Sleep(time.Hour)
		equal(t, "a", len(r.of("a")), 1)
		r.mustStop(t)
	})
}

// odd is a Rate that says what it likes.
type odd struct {
	delay func() time.Duration
	take  func() bool
}

func (o odd) Delay(time.Time) time.Duration { return o.delay() }
func (o odd) Take(time.Time) bool           { return o.take() }

// Nonsense neither lets an attempt go that was not taken nor stops anything for ever, and the others go on.
func TestNonsense(t *testing.T) {
	var mended atomic.Bool
	yes := func() bool { return true }
	for name, c := range map[string]struct {
		rate  odd
		count int // of the odd one's attempts before it is mended
		told  bool
	}{
		"negative":   {odd{func() time.Duration { return math.MinInt64 }, yes}, 1, false},
		"never":      {odd{func() time.Duration { return math.MaxInt64 }, yes}, 0, false},
		"takes none": {odd{func() time.Duration { return 0 }, mended.Load}, 0, false},
		"panics":     {odd{func() time.Duration { panic("on purpose") }, yes}, 0, true},
		"panics later": {odd{func() time.Duration { return 0 }, func() bool {
			if !mended.Load() {
				panic("on purpose")
			}
			return true
		}}, 0, true},
	} {
		for _, whose := range []string{"own", "all"} {
			bubble(t, name+"/"+whose, func(t *testing.T) {
				mended.Store(false)
				var asked atomic.Int64
				rate := odd{func() time.Duration {
					if asked.Add(1); mended.Load() {
						return 0
					}
					return c.rate.delay()
				}, c.rate.take}
				partition := dispatch.Partition{Ledger: memory(t, 3), Source: fill("odd", "fine")}
				cfg := dispatch.Config{RateOf: only("odd", rate)}
				if whose == "all" {
					cfg.Rate, cfg.RateOf, partition.Source = rate, nil, fill("odd")
				}
				r := run(t, partition, cfg)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				equal(t, "odd", len(r.of("odd")), c.count)
				if whose == "own" {
					equal(t, "fine", len(r.of("fine")), 1)
				}
				if asked := asked.Load(); asked > 3*10*1000+10 { // one millisecond after the other, at worst
					t.Errorf("D10: asked %d times", asked)
				}
				told := r.seen.of(dispatch.CallbackFailed)
				equal(t, "told", len(told) > 0, c.told)
				for _, e := range told {
					if !is[*dispatch.PanicError](e.Err) || e.Domain != "odd" || e.Wait <= 0 {
						t.Errorf("D10: told %+v", e)
					}
				}
				mended.Store(true)
				time.Sleep(time.Minute + time.Second)
				equal(t, "odd, mended", len(r.of("odd")), 1)
				r.mustStop(t)
			})
		}
	}
}
