// SPDX-License-Identifier: Apache-2.0

// What is missing from a sample, for any facts (M2).

package monitor

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// A sample from which sources are taken away has nothing in their place and is otherwise the sample with all of them.
func TestPropertyMissingIsNotZero(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bounds := someBounds(t)
		whole, part := newSampler(bounds...), newSampler(bounds...)
		n := len(whole.delays.counts)
		before, after := someFacts(t, n), someFacts(t, n)
		for _, f := range []*facts{&before, &after} {
			f.usedOK, f.runnableOK = true, true
			if f.throttled.OK = true; f.counts == nil {
				f.counts = make([]uint64, n)
			}
		}
		before.at = start
		after.at = start.Add(time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "gap")))
		whole.compareLocked(before)
		want := whole.compareLocked(after)
		if want.Utilization.OK != (after.used >= before.used && after.at.After(before.at)) || !want.Runnable.OK ||
			!want.Throttled.OK ||
			(want.Lag.Count == 0) != (want.Lag == Lag{}) {
			t.Fatalf("M2: with all sources: %+v", want)
		}
		if rapid.Bool().Draw(t, "no processor time before") {
			before.used, before.usedOK, want.Utilization = 0, false, Reading{}
		}
		if rapid.Bool().Draw(t, "no processor time") {
			after.used, after.usedOK, want.Utilization = 0, false, Reading{}
		}
		if rapid.Bool().Draw(t, "no runnable") {
			after.runnable, after.runnableOK, want.Runnable = 0, false, Reading{}
		}
		if rapid.Bool().Draw(t, "no throttled") {
			after.throttled, want.Throttled = Reading{}, Reading{}
		}
		if rapid.Bool().Draw(t, "no latencies") {
			after.counts, want.Lag = nil, Lag{}
		}
		part.compareLocked(before)
		if got := part.compareLocked(after); !cmp.Equal(got, want) {
			t.Fatalf("M2:\n got %+v\nwant %+v", got, want)
		}
	})
}

// What this Go does not know, this Sampler does not say, whichever of it that is.
func TestPropertyMetricsThatThisGoDoesNotHave(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := must(New())(t)
		name := "/" + rapid.StringMatching(`[a-z]{1,12}`).Draw(t, "name") + ":unknown"
		lag, waiting := rapid.Bool().Draw(t, "no latencies"), rapid.Bool().Draw(t, "no runnable")
		if lag {
			s.metrics[latencies].Name = name
		}
		if waiting {
			s.metrics[runnable].Name = name
		}
		if got := s.Sample(); lag && got.Lag != (Lag{}) || waiting && got.Runnable != (Reading{}) {
			t.Fatalf("M2: %+v", got)
		}
	})
}
