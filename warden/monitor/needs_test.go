// What work of a name takes at least (M8), against one that keeps every execution.

package monitor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// M8: Needs tells of the first 64 names the shortest of their last 64 executions, rounded down by a sixteenth at most, once so many have ended,
// in order of the names; of further names it tells nothing.
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
			r := NewRecorder()
			took, first := map[string][]time.Duration{}, []string(nil)
			check := func() {
				time.Sleep(time.Nanosecond)
				out, want := r.take(time.Now()).Needs, 0
				known := slices.IndexFunc(out[:], func(k Need) bool { return k.Time == 0 })
				got := out[:max(known, 0)]
				if known < 0 {
					got = out[:]
				}
				if !slices.IsSortedFunc(got, func(a, b Need) int { return strings.Compare(a.Name, b.Name) }) {
					wrong = fmt.Sprintf("M8: not in order: %v", got)
				}
				for _, name := range first {
					if all := took[name]; len(all) >= enough {
						want++
						shortest := slices.Min(all[len(all)-recall:])
						i := slices.IndexFunc(got, func(k Need) bool { return k.Name == name })
						if i < 0 || got[i].Time > shortest || got[i].Time < shortest-shortest/16-time.Nanosecond {
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
