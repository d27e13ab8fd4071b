// SPDX-License-Identifier: Apache-2.0

// What work of a name takes at least (M8), against one that keeps every execution.

package monitor

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// M8: Needs has, of the first 64 names, the shortest of their last 64 executions, rounded down by a sixteenth at most, once so
// many have ended, and nothing of further names. A map that was returned never changes.
func TestPropertyNeedsAgainstEveryExecution(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		names := rapid.SampledFrom([]int{1, 3, 70}).Draw(rt, "names")
		each := rapid.IntRange(0, 150).Draw(rt, "executions")
		if names == 70 {
			each = 65
		}
		takes := rapid.SliceOfN(rapid.IntRange(1, 1000), names*each, names*each).Draw(rt, "takes, in us")
		slower := time.Duration(rapid.IntRange(0, 20).Draw(rt, "slower by")) * time.Microsecond // with each execution
		wrong := ""
		inBubble(t, rt, func() {
			r := newRecorder()
			took, first := map[string][]time.Duration{}, []string(nil)
			var last, same map[string]time.Duration
			check := func() {
				time.Sleep(time.Nanosecond)
				if !maps.Equal(last, same) {
					wrong = fmt.Sprintf("M8: an earlier map has changed from %v to %v", same, last)
				}
				got, want := r.take(time.Now()).Needs, 0
				last, same = got, maps.Clone(got)
				for _, name := range first {
					if all := took[name]; len(all) >= enough {
						want++
						shortest := slices.Min(all[len(all)-recall:])
						if need := got[name]; need > shortest || need < shortest-shortest/16-time.Nanosecond {
							wrong = fmt.Sprintf("M8: %q: %v, want a little less than %v", name, got, shortest)
						}
					}
				}
				if len(got) != want {
					wrong = fmt.Sprintf("M8: %d names, want %d: %v", len(got), want, got)
				}
			}
			for n := range each {
				for i := range names {
					name := fmt.Sprint("kind ", i)
					if n == 0 && len(first) < mostKinds {
						first = append(first, name)
					}
					span := r.Start(name)
					time.Sleep(time.Duration(n)*slower + time.Duration(takes[n*names+i])*time.Microsecond)
					took[name] = append(took[name], span.End())
				}
				if n%25 == 0 {
					check()
				}
			}
			check()
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

// M8: names that are asked for once keep no place from work that comes later, and take none from work that is quiet for a while.
func TestPropertyAScannerIsForgotten(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		known := rapid.IntRange(enough, 300).Draw(rt, "known executions")
		quiet := time.Duration(rapid.IntRange(1, known-1).Draw(rt, "quiet for minutes")) * time.Minute
		names := rapid.IntRange(1, 1000).Draw(rt, "names that are asked for once")
		var kept, learnt bool
		inBubble(t, rt, func() {
			r := newRecorder()
			work := func(name string, times int, pause time.Duration) (needs time.Duration) {
				for range times {
					span := r.Start(name)
					time.Sleep(time.Millisecond)
					span.End()
					time.Sleep(pause)
					needs = r.take(time.Now()).Needs[name]
				}
				return needs
			}
			work("old", known, 0)
			for i := range names {
				r.Start(fmt.Sprint("/", i, ".php")).End()
				time.Sleep(quiet / time.Duration(names))
				kept = r.take(time.Now()).Needs["old"] > 0
			}
			learnt = work("new", 2*enough, 2*time.Second) > 0
		})
		if !kept || !learnt {
			rt.Fatalf("M8: kept %v, learnt %v", kept, learnt)
		}
	})
}
