// SPDX-License-Identifier: Apache-2.0

// What a step costs: the decision's reasons and its Stale decision, and little else.

package control_test

import (
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/monitor"
)

func step(tb testing.TB) func() {
	c := mustNew(tb, control.Config{Processors: 8})
	s := used(64)
	s.At = epoch
	s.Lag = monitor.Lag{P50: time.Millisecond, P90: 5 * time.Millisecond, Count: 100}
	return func() {
		s.At = s.At.Add(tick)
		c.Step(s)
	}
}

func BenchmarkStep(b *testing.B) {
	b.ReportAllocs()
	next := step(b)
	for b.Loop() {
		next()
	}
}

func TestStepAllocates(t *testing.T) {
	if n := testing.AllocsPerRun(1000, step(t)); n > 3 {
		t.Fatalf("a step allocates %v times, want 3: its reasons, the Stale decision and the reasons of that", n)
	}
}
