// SPDX-License-Identifier: Apache-2.0

// How attempts are counted (R8), beside a list of those that have ended.

package retry_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/retry"
)

// An attempt is in one counter from the moment at which it has ended, in the one that its outcome names, and in none if that is
// Unknown or it never ends. So the throttle knows of those that have ended, and of calls that it has rejected. All are in the one
// second that it looks at.
func TestPropertyAnAttemptCountsOnceItHasEnded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		outcomes := rapid.SliceOfN(rapid.SampledFrom([]int{-1, 0, 1, 2, 2, 2}), 1, 80).Draw(rt, "outcomes") // -1: it never ends
		together := rapid.IntRange(1, 8).Draw(rt, "together")
		drawn := rapid.Float64Range(0, 0.9).Draw(rt, "drawn")
		got, want := []retry.Stats{}, []retry.Stats{}
		synctest.Test(t, func(t *testing.T) {
			c := mustNew(t, retry.Config{Rand: func() float64 { return drawn }})
			s, whole := retry.Stats{}, 0.0
			for len(outcomes) > 0 {
				some := outcomes[:min(together, len(outcomes))]
				outcomes = outcomes[len(some):]
				var calls []retry.Call
				for range some {
					call, _ := c.Begin(retry.Target{Priority: decision.Normal})
					calls = append(calls, call)
					if probability := (whole - 2*float64(s.Accepted)) / (whole + 1); whole >= 10 &&
						drawn < min(probability, 0.8) {
						s.Throttled++
						whole++
					} else {
						s.Calls++
					}
				}
				got, want = append(got, c.Stats()), append(want, s)
				for i := range calls {
					if some[i] < 0 {
						continue
					}
					calls[i].Ended(decision.Normal, retry.Outcome(some[i]))
					switch o := retry.Outcome(some[i]); {
					case calls[i] == retry.Call{} || o == retry.Unknown:
					case o == retry.Accepted:
						s.Accepted++
						whole++
					case o == retry.Rejected:
						s.Rejected++
						whole++
					}
					got, want = append(got, c.Stats()), append(want, s)
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
		if diff := cmp.Diff(want, got); diff != "" {
			rt.Fatalf("R8: R8 (-want +got)\n%s", diff)
		}
	})
}
