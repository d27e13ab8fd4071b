// SPDX-License-Identifier: Apache-2.0

// Which executions count as long, against one that keeps every execution of every kind.

package monitor

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// A history is all that a kind has ever run.
type history struct {
	running []time.Time
	took    []time.Duration
	at      time.Time // of the last end
	long    int
}

// slowest is the 90th percentile of some times.
func slowest(times []time.Duration) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[len(sorted)*9/10]
}

// M7: long is what has run for a second, and for eight times the 90th percentile of the last 64 that ended of its kind; none is
// added while the newer half of them takes half as long again as the older, until as long has passed.
func TestPropertyLongAgainstEveryExecution(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		inBubble(t, rt, func() {
			r := newRecorder()
			names := []string{"a", "b", "c"}
			kinds := map[string]*history{"a": {}, "b": {}, "c": {}}
			type running struct {
				Span
				name  string
				began time.Time
			}
			var spans []running
			steps := map[string]func(*rapid.T){
				"start": func(t *rapid.T) {
					name := rapid.SampledFrom(names).Draw(t, "name")
					for range rapid.IntRange(1, 5).Draw(t, "so many") {
						spans = append(spans, running{r.Start(name), name, time.Now()})
						kinds[name].running = append(kinds[name].running, time.Now())
					}
				},
				"while": func(t *rapid.T) {
					time.Sleep(time.Duration(rapid.SampledFrom([]int{1, 20, 300, 2000, 30_000}).Draw(t, "ms")) * time.Millisecond)
				},
				"end": func(t *rapid.T) {
					for range rapid.IntRange(1, 5).Draw(t, "so many") {
						if len(spans) == 0 {
							return
						}
						i := rapid.IntRange(0, len(spans)-1).Draw(t, "which")
						s := spans[i]
						spans = slices.Delete(spans, i, i+1)
						k := kinds[s.name]
						k.running = slices.Delete(k.running, slices.Index(k.running, s.began), slices.Index(k.running, s.began)+1)
						if rapid.IntRange(0, 4).Draw(t, "discard") == 0 {
							s.Discard()
							continue
						}
						s.End()
						k.took, k.at = append(k.took, time.Since(s.began)), time.Now()
					}
				},
				"take": func(t *rapid.T) {
					time.Sleep(time.Nanosecond)
					got := r.take(time.Now())
					long, name, age := 0, "", time.Duration(0)
					for _, n := range names {
						k := kinds[n]
						before := k.long
						if k.long = 0; len(k.running) == 0 || time.Since(k.running[0]) < time.Second {
							continue
						}
						times := k.took[max(0, len(k.took)-64):]
						bar := max(time.Second, 8*slowest(times))
						for _, began := range k.running {
							if time.Since(began) >= bar {
								k.long++
							}
						}
						half := len(times) / 2
						if float64(slowest(times[half:])) > 1.5*float64(slowest(times[:half])) && time.Since(k.at) < bar {
							k.long = min(k.long, before)
						}
						if long += k.long; k.long > 0 && time.Since(k.running[0]) > age {
							name, age = n, time.Since(k.running[0])
						}
					}
					if got.Long != long || got.LongFor != age ||
						age > 0 && got.LongName != name && len(kinds[got.LongName].running) == 0 {
						t.Fatalf(
							"M7: %d are long, the oldest is %q for %v; want %d, %q for %v",
							got.Long, got.LongName, got.LongFor, long, name, age,
						)
					}
				},
			}
			rt.Repeat(steps)
			for _, s := range spans {
				s.End()
			}
		})
	})
}

// TestKindsAreBounded: the first 64 names are kinds of their own, and the rest shares one; nobody is forgotten.
func TestKindsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		for i := range 1000 {
			r.Start(fmt.Sprint(i))
		}
		time.Sleep(time.Minute)
		if got := r.take(time.Now()); got.Long != 1000 || len(r.kinds) != mostKinds {
			t.Errorf("M7: %d of 1000 are long, %d kinds", got.Long, len(r.kinds))
		}
	})
}

// TestNothingBecomesLongWhileItBecomesSlower: work that takes 25 times as long as before counts as long only once such a time has
// passed without an end.
func TestNothingBecomesLongWhileItBecomesSlower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		run := func(took time.Duration) {
			s := r.Start("query")
			time.Sleep(took)
			s.End()
		}
		for range 40 {
			run(100 * time.Millisecond)
		}
		s := r.Start("query")
		for range 4 {
			run(2500 * time.Millisecond)
		}
		if got := r.take(time.Now()); got.Long != 0 {
			t.Errorf("M7: %d are long while queries become slower", got.Long)
		}
		time.Sleep(20 * time.Second)
		if got := r.take(time.Now()); got.Long != 1 || got.LongName != "query" || got.LongFor != 30*time.Second {
			t.Errorf("M7: nothing has ended for 20 s, and %d are long, the oldest %q for %v", got.Long, got.LongName, got.LongFor)
		}
		s.End()
	})
}
