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
