// SPDX-License-Identifier: Apache-2.0

// What kinds of work need goes from a sample into the decision as it is (C16).

package control_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/control"
)

// C16: whatever samples say, each decision and its Stale one need what the last sample said, and neither changes afterwards.
func TestPropertyNeedsAreTheSamples(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, now := mustNew(t, control.Config{Processors: 2}), clock{}
		var before, was map[string]time.Duration
		for range rapid.IntRange(1, 6).Draw(t, "samples") {
			s, want := quiet(), map[string]time.Duration{}
			s.Service.Needs = map[string]time.Duration{}
			for i := range rapid.SampledFrom([]int{0, 1, 3, 64}).Draw(t, "names") {
				name, need := fmt.Sprint(i), rapid.SampledFrom([]time.Duration{-1, 0, 1, 2, 1 << 40}).Draw(t, "needs")
				if s.Service.Needs[name] = need; need > 0 {
					want[name] = need
				}
			}
			d := c.Step(now.next(s))
			if diff := cmp.Diff(want, d.Needs, cmpopts.EquateEmpty()); diff != "" || !cmp.Equal(d.Needs, d.Stale.Needs) ||
				d.Validate() != nil {
				t.Fatalf("C16: %v; stale %v\n%s", d.Validate(), d.Stale.Needs, diff)
			}
			if !cmp.Equal(before, was) {
				t.Fatalf("C16: an earlier decision has changed from %v to %v", was, before)
			}
			before, was = d.Needs, want
			if len(want) == 0 {
				was = before
			}
		}
	})
}
