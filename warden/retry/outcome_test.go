// How attempts are counted (R8), beside a list of those that have ended.

package retry_test

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/retry"
)

// An attempt is in one counter from the moment at which it has ended, in the one that its outcome names, and in none if that is Unknown or it never ends.
func TestPropertyR8_AnAttemptCountsOnceItHasEnded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		outcomes := rapid.SliceOfN(rapid.IntRange(-1, 2), 1, 60).Draw(rt, "outcomes") // -1: it never ends
		together := rapid.IntRange(1, 8).Draw(rt, "together")
		got, want := []retry.Stats{}, []retry.Stats{}
		synctest.Test(t, func(t *testing.T) {
			c := mustNew(t, retry.Config{Rand: func() float64 { return 1 }}) // nothing is throttled
			s := retry.Stats{}
			for len(outcomes) > 0 {
				some := outcomes[:min(together, len(outcomes))]
				outcomes = outcomes[len(some):]
				var calls []retry.Call
				for range some {
					call, err := c.Begin(limiter.Normal)
					if err != nil {
						t.Error(err)
						return
					}
					calls = append(calls, call)
					s.Calls++
				}
				got, want = append(got, c.Stats()), append(want, s)
				for i := range calls {
					if some[i] < 0 {
						continue
					}
					switch calls[i].Ended(limiter.Normal, retry.Outcome(some[i])); retry.Outcome(some[i]) {
					case retry.Accepted:
						s.Accepted++
					case retry.Rejected:
						s.Rejected++
					}
					got, want = append(got, c.Stats()), append(want, s)
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
		for i := range got {
			if got[i] != want[i] {
				rt.Fatalf("R8: %+v, want %+v", got[i], want[i])
			}
		}
	})
}
