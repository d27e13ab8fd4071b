// SPDX-License-Identifier: Apache-2.0

// Bugs that others had, by the issue in which they were told, and that a Caller does not have.

package retry_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/retry"
)

// envoyproxy/envoy #30205: the retry budget counted the retries on their way and not those in their backoff, so that everybody
// who failed at once was granted one.
func TestPeer_EnvoyBudgetForgetsRetriesInBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 200
		c := mustNew(t, retry.Config{Ratio: 0.1, MinRetries: 1, Backoff: 5 * time.Second, Rand: func() float64 { return 1 }})
		var all []retry.Call
		for range calls {
			call, err := c.Begin(retry.Target{Priority: decision.Normal})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, call)
		}
		granted := 0
		for i := range all { // nobody's retry has begun while the others ask
			all[i].Ended(decision.Normal, retry.Unknown)
			if _, ok := all[i].Retry(0, time.Time{}); ok {
				granted++
			}
		}
		if s := c.Stats(); granted != calls/10 || s.Retries != calls/10 {
			t.Errorf("%d retries were granted to %d calls: %+v", granted, calls, s)
		}
	})
}
