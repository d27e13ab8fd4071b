// SPDX-License-Identifier: Apache-2.0

// When the wait of those without a deadline is bounded, and when there is still hope.

package control_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/control"
)

// C15: a wait is bounded by a second or three executions, by three seconds while nothing has ended, but not before the limit has stood at its highest for three executions
// without a trial, nor in a trial that may outlast the bound.
func TestPropertyWaitIsBoundedWithoutHope(t *testing.T) {
	bounded, tried, free := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		c, m := mustNew(
			t, control.Config{Processors: 2, Initial: rapid.IntRange(1, 64).Draw(t, "initial")},
		), newModel(rapid.Uint64().Draw(t, "seed"))
		m.slots = rapid.IntRange(0, 20).Draw(t, "slots")
		m.took = rapid.SampledFrom([]float64{0.002, 0.04, 0.5}).Draw(t, "took")
		m.offered = rapid.Float64Range(1, 80).Draw(t, "offered")
		d := begin(c)
		highest, since := d.TargetConcurrency, time.Duration(0)
		for range rapid.IntRange(10, 300).Draw(t, "samples") {
			d = c.Step(m.sample(d.TargetConcurrency))
			trial := strings.Contains(fmt.Sprint(d.Reasons), "service_trial")
			switch {
			case d.TargetConcurrency > highest:
				highest, since = d.TargetConcurrency, 0
			case !trial:
				since += 100 * time.Millisecond
			}
			hope := ""
			switch {
			case trial && 12*d.Expected > time.Second+time.Millisecond:
				hope = "a trial is on"
			case since < 3*d.Expected-time.Millisecond:
				hope = fmt.Sprintf("the limit rose to %d %v ago", highest, since)
			}
			want := max(time.Second, 3*d.Expected)
			if d.Expected == 0 {
				want = 3 * time.Second
			}
			switch {
			case d.MaxWait == 0:
				free++
			case hope != "":
				t.Fatalf("C15: a wait is bounded by %v, although %s; %v are expected", d.MaxWait, hope, d.Expected)
			case (d.MaxWait - want).Abs() > time.Microsecond:
				t.Fatalf("C15: a wait is bounded by %v where %v are expected, want %v", d.MaxWait, d.Expected, want)
			case trial:
				tried++
			default:
				bounded++
			}
		}
	})
	if bounded < free/10 || tried == 0 {
		t.Errorf("C15: a wait was bounded by %d decisions and in a trial by %d, and by %d it was not", bounded, tried, free)
	}
}
