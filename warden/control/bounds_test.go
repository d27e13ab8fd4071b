// SPDX-License-Identifier: Apache-2.0

// Bounds that change between samples (C18).

package control_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Whatever was sampled before and is sampled afterwards, each decision keeps to the bounds of its time, and so does its Stale
// decision; what is refused changes nothing; and with the first bounds back, calm brings the limit back.
func TestPropertyBoundsChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := configs(t)
		c, twin := mustNew(t, cfg), mustNew(t, cfg)
		first := c.Step(monitor.Sample{At: epoch})
		twin.Step(monitor.Sample{At: epoch})
		firstLow, firstHigh := c.Bounds()
		low, high := firstLow, firstHigh
		samples, now := history(t)
		changed := false
		for i, s := range samples {
			switch rapid.IntRange(0, 9).Draw(t, "change") {
			case 0:
				low = rapid.IntRange(1, 100).Draw(t, "low")
				high = low + rapid.IntRange(0, 300).Draw(t, "more")
				changed = true
				if err := c.SetBounds(low, high); err != nil {
					t.Fatal(err)
				}
			case 1:
				const most = 1 << 24
				bad := rapid.SampledFrom([][2]int{{0, high}, {-1, high}, {low, low - 1}, {low, most + 1}, {most + 1, most +
					1}}).Draw(t, "bad")
				if err := c.SetBounds(bad[0], bad[1]); !errors.Is(err, decision.ErrInvalid) {
					t.Fatalf("C18: %v is accepted: %v", bad, err)
				}
			}
			if is, most := c.Bounds(); is != low || most != high {
				t.Fatalf("C18: bounds %d to %d, want %d to %d", is, most, low, high)
			}
			d := c.Step(s)
			for _, target := range []int{d.TargetConcurrency, d.Stale.TargetConcurrency} {
				if target < low || target > high {
					t.Fatalf("C18: sample %d: limit %d, bounds %d to %d", i, target, low, high)
				}
			}
			if was := twin.Step(s); !changed && !cmp.Equal(was, d, cmp.AllowUnexported(first.Reasons[0])) {
				t.Fatalf("C18: sample %d: without a change %+v, with a refused one %+v", i, was, d)
			}
		}
		if err := c.SetBounds(firstLow, firstHigh); err != nil {
			t.Fatal(err)
		}
		d := first
		for range 160 {
			now = now.Add(100 * time.Millisecond)
			d = c.Step(calm(now))
		}
		if d.TargetConcurrency < first.TargetConcurrency {
			t.Fatalf("C18: limit %d of %d, 160 calm samples after the first bounds are back; %v",
				d.TargetConcurrency, first.TargetConcurrency, d.Reasons)
		}
	})
}
