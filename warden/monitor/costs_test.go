// SPDX-License-Identifier: Apache-2.0

// What a Sampler and its Recorder cost, whatever is asked of them: no memory (M4), no goroutine (M5).

package monitor_test

import (
	"bytes"
	"runtime"
	"testing"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/monitor"
)

// script is what a recorder is told and a sampler asked, one after the other.
func script(t *rapid.T) (ops []int) {
	return rapid.SliceOfN(rapid.IntRange(0, 3), 1, 40).Draw(t, "ops")
}

// play carries a script out. Spans that are under way at its end are discarded.
func play(s *monitor.Sampler, r *monitor.Recorder, ops []int, spans []monitor.Span) {
	for _, op := range ops {
		switch last := len(spans) - 1; {
		case op == 0:
			s.Sample()
		case op == 1 && len(spans) < cap(spans):
			spans = append(spans, r.Start(""))
		case op == 2 && last >= 0:
			spans[last].End()
			spans = spans[:last]
		case last >= 0:
			spans[last].Discard()
			spans = spans[:last]
		}
	}
	for _, span := range spans {
		span.Discard()
	}
}

func TestPropertyNothingAllocates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := monitor.New()
		if err != nil {
			t.Fatal(err)
		}
		r := s.Recorder()
		if rapid.Bool().Draw(t, "no recorder") {
			r = nil
		}
		ops, spans := script(t), make([]monitor.Span, 0, 40)
		play(s, r, ops, spans)
		if n := testing.AllocsPerRun(5, func() { play(s, r, ops, spans) }); n != 0 {
			t.Fatalf("M4: %v allocations", n)
		}
	})
}

func TestPropertyNoGoroutine(t *testing.T) {
	of := []byte("created by github.com/stopbank/stopbank/warden/monitor.")
	all := make([]byte, 1<<18)
	rapid.Check(t, func(t *rapid.T) {
		s, err := monitor.New()
		if err != nil {
			t.Fatal(err)
		}
		r := s.Recorder()
		play(s, r, script(t), make([]monitor.Span, 0, 40))
		if n := bytes.Count(all[:runtime.Stack(all, true)], of); n > 0 {
			t.Fatalf("M5: %d goroutines of this package", n)
		}
	})
}
