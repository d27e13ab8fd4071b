// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file holds D11: owners of domains share the places, by places and by time; all in virtual time.

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// ownerOf is the part of a domain before the slash.
func ownerOf(domain string) string {
	owner, _, _ := strings.Cut(domain, "/")
	return owner
}

// In any company: when a place goes to an owner, nobody who had fewer was waiting for it.
func TestPropertyTheFewestFirst(t *testing.T) {
	starts, waits := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		partitions := rapid.IntRange(1, 3).Draw(rt, "partitions")
		owners := rapid.IntRange(1, 6).Draw(rt, "owners")
		slots := rapid.IntRange(1, 8).Draw(rt, "places")
		n := rapid.IntRange(1, 120).Draw(rt, "records")
		keys := rapid.SliceOfN(rapid.IntRange(1, 12), owners, owners).Draw(rt, "keys")
		of := rapid.SliceOfN(rapid.IntRange(0, owners-1), n, n).Draw(rt, "of")
		gaps := rapid.SliceOfN(rapid.SampledFrom([]int{0, 0, 0, 0, 3, 50}), n, n).Draw(rt, "gaps, ms")
		took := rapid.SliceOfN(rapid.IntRange(1, 100_000_000), n, n).Draw(rt, "took, ns")
		var (
			mu    sync.Mutex
			has   = map[string]int{}
			heads = map[string][]int{}     // the records of a key that are not done
			free  = map[string]time.Time{} // since when a key waits for a place
			wrong []string
			began int
		)
		synctest.Test(t, func(t *testing.T) {
			c := consume(t, dispatch.Config{
				MaxInFlight: slots, Owner: ownerOf,
				Handler: func(_ context.Context, job dispatch.Job) error {
					var index int
					_, _ = fmt.Sscan(string(job.Record.Payload), &index)
					domain, owner, now := job.Record.Domain, ownerOf(job.Record.Domain), time.Now()
					mu.Lock()
					for other, since := range free {
						if o := ownerOf(other); since.Before(now) && o != owner {
							waits++
							if has[o] < has[owner] {
								wrong = append(wrong,
									fmt.Sprintf("%s begins for the one with %d, and %s waits for the one with %d", domain,
										has[owner], other, has[o]))
							}
						}
					}
					delete(free, domain)
					has[owner]++
					began++
					mu.Unlock()
					// Each record ends in a nanosecond of its own: two slots that come free at once are taken in order, but their
					// handlers begin in any.
					ends := now.Add(time.Duration(took[index])).Truncate(time.Microsecond)
					ends = ends.Add(time.Microsecond + time.Duration(index+1))
					time.Sleep(time.Until(ends))
					mu.Lock()
					defer mu.Unlock()
					has[owner]--
					if heads[domain] = heads[domain][1:]; len(heads[domain]) > 0 {
						free[domain] = time.Now()
					}
					return nil
				},
			})
			var parts []dispatch.Partition
			for i := range partitions {
				parts = append(parts, filled(t, fmt.Sprint("p", i), 0))
				c.give(parts[i])
			}
			synctest.Wait()
			for i, owner := range of {
				time.Sleep(time.Duration(gaps[i]) * time.Millisecond)
				synctest.Wait()
				key := i % keys[owner]
				domain := fmt.Sprintf("o%d/%d", owner, key)
				mu.Lock()
				if heads[domain] = append(heads[domain], i); len(heads[domain]) == 1 {
					free[domain] = time.Now()
				}
				mu.Unlock()
				parts[key%partitions].Source.(*dispatch.Log).Append(domain, fmt.Append(nil, i))
				synctest.Wait()
			}
			time.Sleep(time.Hour)
			c.mustStop(t)
		})
		if began != n {
			rt.Errorf("D11: %d starts, want %d", began, n)
		}
		for _, w := range wrong {
			rt.Error(w)
		}
		starts += n
	})
	t.Logf("%d starts, %d comparisons", starts, waits)
	if waits == 0 {
		t.Error("D11: nobody ever waited")
	}
}

// shared has owners with so much to do that they always wait work through places, each at a cost of its own, and returns what a
// measurement of so many seconds says each has got. The last one comes when the others have worked for so long; the measurement
// begins when that has settled.
const settle = 15

func shared(t *testing.T, partitions, slots int, costs []time.Duration, alone, seconds int) map[string]time.Duration {
	var mu sync.Mutex
	got := map[string]time.Duration{}
	synctest.Test(t, func(t *testing.T) {
		c := consume(t, dispatch.Config{
			MaxInFlight: slots, MaxBuffered: 1 << 14, MaxPerOwner: 64, Owner: ownerOf,
			Handler: func(_ context.Context, job dispatch.Job) error {
				owner := ownerOf(job.Record.Domain)
				var index int
				_, _ = fmt.Sscanf(owner, "o%d", &index)
				for range 10 {
					time.Sleep(costs[index] / 10)
					mu.Lock()
					got[owner] += costs[index] / 10
					mu.Unlock()
				}
				return nil
			},
		})
		var parts []dispatch.Partition
		for i := range partitions {
			parts = append(parts, filled(t, fmt.Sprint("p", i), 0))
			c.give(parts[i])
		}
		synctest.Wait()
		flood := func(owner int) {
			for i := range int(time.Duration(alone+settle+seconds)*time.Second/costs[owner])*slots + 100 {
				parts[i%partitions].Source.(*dispatch.Log).Append(fmt.Sprintf("o%d/%d", owner, i%50), nil)
			}
		}
		for owner := range len(costs) - 1 {
			flood(owner)
		}
		time.Sleep(time.Duration(alone) * time.Second)
		flood(len(costs) - 1)
		time.Sleep(settle * time.Second) // what the others have begun alone has ended, and was made good
		mu.Lock()
		clear(got)
		mu.Unlock()
		time.Sleep(time.Duration(seconds) * time.Second)
		mu.Lock()
		measured := maps.Clone(got)
		mu.Unlock()
		c.mustStop(t)
		got = measured
	})
	return got
}

// Owners with more to do than they get have the same time, but for a few records, whatever those cost, and whether there is a
// place for each or not. Who comes back has saved nothing up and owes nothing.
func TestPropertyTheSameTime(t *testing.T) {
	worst := 0.0
	rapid.Check(t, func(rt *rapid.T) {
		partitions := rapid.IntRange(1, 3).Draw(rt, "partitions")
		slots := rapid.IntRange(1, 6).Draw(rt, "places")
		owners := rapid.IntRange(2, 12).Draw(rt, "owners")
		costs := rapid.SliceOfN(rapid.SampledFrom([]time.Duration{50 * time.Millisecond, 500 * time.Millisecond,
			time.Second}), owners, owners).Draw(rt, "cost")
		alone := rapid.IntRange(0, 40).Draw(rt, "seconds after which the last one comes")
		got := shared(t, partitions, slots, costs, alone, 20)
		least, most, costliest := time.Hour, time.Duration(0), slices.Max(costs)
		for owner := range owners {
			g := got[fmt.Sprint("o", owner)]
			least, most = min(least, g), max(most, g)
		}
		worst = max(worst, float64(most-least)/float64(costliest))
		if most-least > 5*costliest {
			rt.Errorf("D11: from %v to %v, and the costliest record takes %v: %v", least, most, costliest, got)
		}
	})
	t.Logf("%.2f records apart at most", worst)
}

// An owner who alone had all the slots at once, or one far beyond its time, waits for the others AttemptTimeout at most, and
// one record.
func TestAnOwnersDebtIsBounded(t *testing.T) {
	const longest, short = time.Second, 10 * time.Millisecond
	for _, tc := range []struct {
		slots int
		took  time.Duration
	}{{1, longest - 1}, {1, 20 * longest}, {8, longest - 1}, {8, 20 * longest}} {
		synctest.Test(t, func(t *testing.T) {
			began, again := time.Now(), time.Duration(0)
			c := consume(t, dispatch.Config{MaxInFlight: tc.slots, MaxBuffered: 1 << 14, MaxPerOwner: 256,
				AttemptTimeout: longest, Owner: ownerOf,
				Handler: func(_ context.Context, job dispatch.Job) error {
					took := short
					if domain := job.Record.Domain; domain == "long/again" {
						again = time.Since(began)
					} else if ownerOf(domain) == "long" {
						took = tc.took
					}
					time.Sleep(took)
					return nil
				}})
			p := filled(t, "p", 0)
			log := p.Source.(*dispatch.Log)
			for i := range tc.slots {
				log.Append(fmt.Sprint("long/", i), nil)
			}
			c.give(p)
			synctest.Wait()
			log.Append("long/again", nil)
			for i := range 100 * tc.slots * int((tc.took+10*longest)/time.Second) {
				log.Append(fmt.Sprintf("short%d/%d", i%tc.slots, i), nil)
			}
			time.Sleep(tc.took + 20*longest)
			if again == 0 {
				again = time.Since(began)
			}
			if waited := again - tc.took; waited > longest+short {
				t.Errorf("D11: after %d records of %v at once their owner waits for %v or longer, want %v at most",
					tc.slots, tc.took, waited, longest+short)
			}
			c.mustStop(t)
		})
	}
}

// A million records of one owner, of 10,000 keys, come before three of another. Those three take what they take alone, and at
// most the rest of a record of the others' more.
func TestQuietBesideAFlood(t *testing.T) {
	delay := func(flood int) (worst time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			c := consume(t, dispatch.Config{Owner: ownerOf, Handler: taking(50 * time.Millisecond)})
			p := filled(t, "p", 0)
			log := p.Source.(*dispatch.Log)
			for i := range flood {
				log.Append(fmt.Sprint("flood/", i%10_000), nil)
			}
			c.give(p)
			time.Sleep(time.Second + time.Millisecond)
			appended := time.Now()
			for i := range 3 {
				log.Append(fmt.Sprint("quiet/", i), nil)
			}
			time.Sleep(time.Second)
			for i := range 3 {
				times, _ := c.at(fmt.Sprint("quiet/", i))
				equal(t, "begun within a second", len(times), 1)
				worst = max(worst, times[0].Add(50*time.Millisecond).Sub(appended))
			}
			if flood > 0 {
				s := c.Stats()[0]
				if s.Buffered < 64 || s.Buffered > 128 {
					t.Errorf("D11: %d buffered, want an eighth of 1024, or half of that", s.Buffered)
				}
				equal(t, "in work", s.Working, 16)
			}
			_ = c.stop()
		})
		return worst
	}
	alone, beside := delay(0), delay(1_000_000)
	t.Logf("alone %v, beside a million %v", alone, beside)
	if alone == 0 || beside > 2*alone {
		t.Errorf("D11: alone %v, beside a million %v", alone, beside)
	}
}

// An owner whose handlers hang has his part of the places and of the window, and the next one finds room in both. What was put
// off of his is done in its order when they end.
func TestStuckOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(dispatch.Log)
		for i := range 3000 {
			log.Append(fmt.Sprintf("%s/%d", []string{"stuck", "a", "b"}[i%3], i%30), nil)
		}
		hang := make(chan struct{})
		r := run(t, dispatch.Partition{Ledger: memory(t, 0), Source: log}, dispatch.Config{
			MaxInFlight: 12, MaxBuffered: 100, MaxPerDomain: 10, MaxPerOwner: 20, Owner: ownerOf,
			Handler: func(_ context.Context, job dispatch.Job) error {
				if ownerOf(job.Record.Domain) == "stuck" {
					<-hang
				}
				time.Sleep(time.Millisecond)
				return nil
			},
		})
		time.Sleep(time.Hour)
		s := r.Stats()
		equal(t, "succeeded", s.Succeeded, 2000)
		equal(t, "buffered", s.Buffered, 20)
		equal(t, "next", r.Next(), 3000)
		equal(t, "floor", s.Floor, 0)
		close(hang)
		time.Sleep(time.Minute)
		equal(t, "succeeded", r.Stats().Succeeded, 3000)
		for i := range 30 {
			domain := fmt.Sprintf("%s/%d", []string{"stuck", "a", "b"}[i%3], i)
			offsets := r.of(domain)
			equal(t, domain, len(offsets), 100)
			if !slices.IsSorted(offsets) {
				t.Errorf("D11: %s: %v", domain, offsets)
			}
		}
		r.mustStop(t)
	})
}

// A function that panics costs its domains their owner, and nothing else.
func TestOwnerPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, dispatch.Partition{Ledger: memory(t, 0), Source: fill("a", "b", "a")}, dispatch.Config{
			Owner: func(string) string { panic("on purpose") },
		})
		time.Sleep(time.Minute)
		equal(t, "succeeded", r.Stats().Succeeded, 3)
		for _, e := range r.seen.of(dispatch.CallbackFailed) {
			if !is[*dispatch.PanicError](e.Err) || e.Domain == "" {
				t.Errorf("D11: told %+v", e)
			}
		}
		if len(r.seen.of(dispatch.CallbackFailed)) == 0 {
			t.Error("D11: nobody was told")
		}
		r.mustStop(t)
	})
}
