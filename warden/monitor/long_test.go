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
	took []time.Duration
	at   time.Time // of the last end
	long int
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
				name   string
				began  time.Time
				awaits int // how often it waits for its client
			}
			var spans []running // in the order of their starts
			steps := map[string]func(*rapid.T){
				"start": func(t *rapid.T) {
					name := rapid.SampledFrom(names).Draw(t, "name")
					for range rapid.IntRange(1, 5).Draw(t, "so many") {
						spans = append(spans, running{Span: r.Start(name), name: name, began: time.Now()})
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
						if rapid.IntRange(0, 4).Draw(t, "discard") == 0 {
							s.Discard()
							continue
						}
						s.End()
						k.took, k.at = append(k.took, time.Since(s.began)), time.Now()
					}
				},
				"park": func(t *rapid.T) {
					if len(spans) > 0 { // it is never long again
						i := rapid.IntRange(0, len(spans)-1).Draw(t, "which")
						s := spans[i]
						spans = slices.Delete(spans, i, i+1)
						s.Park()
						s.Await()
					}
				},
				"await": func(t *rapid.T) {
					if len(spans) > 0 {
						s := &spans[rapid.IntRange(0, len(spans)-1).Draw(t, "which")]
						if rapid.Bool().Draw(t, "resume") {
							s.Resume()
							s.awaits = max(0, s.awaits-1)
						} else {
							s.Await()
							s.awaits++
						}
					}
				},
				"take": func(t *rapid.T) {
					time.Sleep(time.Nanosecond)
					got := r.take(time.Now())
					long, name, age := 0, "", time.Duration(0)
					for _, n := range names {
						k := kinds[n]
						before, awaiting := k.long, 0
						k.long = 0
						times := k.took[max(0, len(k.took)-64):]
						bar := max(time.Second, 8*slowest(times))
						oldest := time.Duration(0)
						for _, s := range spans {
							switch {
							case s.name != n:
								continue
							case s.awaits > 0:
								awaiting++
							case time.Since(s.began) >= bar:
								k.long++
							}
							oldest = max(oldest, time.Since(s.began))
						}
						half := len(times) / 2
						if float64(slowest(times[half:])) > 1.5*float64(slowest(times[:half])) && time.Since(k.at) < bar {
							k.long = min(k.long, before)
						}
						if long += k.long + awaiting; k.long+awaiting > 0 && oldest > age {
							name, age = n, oldest
						}
					}
					if got.Long != long || got.LongFor != age ||
						age > 0 && got.LongName != name && kinds[got.LongName] == nil {
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

// TestParkedCostNothing: a sample looks at none of those that are parked, however many there are; and their kind is not forgotten.
func TestParkedCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		spans := make([]Span, 1000)
		for i := range spans {
			if spans[i] = r.Start("events"); !spans[i].Park() {
				t.Fatal("M13: not parked")
			}
		}
		if k := r.kinds["events"]; k.oldest != nil || k.youngest != nil {
			t.Error("M13: a sample looks at what is parked")
		}
		for i := range mostKinds - 1 {
			r.Start(fmt.Sprint(i)).End()
		}
		for range 2 {
			time.Sleep(24 * time.Hour)
			if got := r.take(time.Now()); got.Running != len(spans) || got.Parked != len(spans) || got.Long != 0 {
				t.Errorf("M13: %d run, %d are parked, %d are long", got.Running, got.Parked, got.Long)
			}
		}
		if r.kinds["events"] == nil || len(r.kinds) != 1 {
			t.Errorf("M7: %d kinds are known", len(r.kinds))
		}
		for _, s := range spans {
			s.End()
		}
		if k := r.kinds["events"]; k.parked != 0 || k.oldest != nil || k.youngest != nil {
			t.Errorf("M13: %d are parked in the end", k.parked)
		}
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
