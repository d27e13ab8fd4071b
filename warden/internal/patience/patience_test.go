// SPDX-License-Identifier: Apache-2.0

package patience

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whoever chooses the hosts does not choose how much is kept of them. Those that answered last are kept, and each answer excuses once.
func TestHostsAreBounded(t *testing.T) {
	h := hosts{of: map[string]*host{}}
	h.answered(strings.Repeat("x", longestHost+1))
	for i := range 2 * mostHosts {
		h.answered(fmt.Sprint(i))
		h.answered("busy")
	}
	if len(h.of) != mostHosts || h.record("1") != (Record{}) || h.record("busy").answers != 2*mostHosts {
		t.Errorf("H14: %d hosts are kept", len(h.of))
	}
	since := h.record("busy")
	if h.excuse("busy", since) || h.excuse("1", Record{}) {
		t.Error("H14: an excuse without an answer")
	}
	h.answered("busy")
	h.answered("busy")
	excuses := 0
	for h.excuse("busy", since) {
		excuses++
	}
	if excuses != 2 || h.excuse("busy", h.record("busy")) {
		t.Errorf("H14: two answers are %d excuses", excuses)
	}
}

// What was waited for lately is known of the last second to two, whatever was before.
func TestPropertyLately(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var r Recent
		now, took, spells := time.Duration(0), time.Duration(0), []time.Duration{}
		works := rapid.SampledFrom([]int{0, 5, 2000}).Draw(rt, "works")
		waits := rapid.SampledFrom([]int{100, 2000}).Draw(rt, "waits")
		for range rapid.IntRange(1, 150).Draw(rt, "spells") {
			idle := time.Duration(rapid.IntRange(0, works).Draw(rt, "ms of work")) * time.Millisecond
			wait := time.Duration(rapid.IntRange(0, waits).Draw(rt, "ms of waiting")) * time.Millisecond
			now += idle
			r.Note(now, took)
			now, took = now+wait, took+wait
			spells = append(spells, idle, wait)
		}
		waited := func(last time.Duration) (sum time.Duration) {
			for i := len(spells) - 1; i >= 0 && last > 0; i-- {
				part := min(spells[i], last)
				if last -= part; i%2 == 1 {
					sum += part
				}
			}
			return sum
		}
		got := r.Most(now, took)
		wait, all := spells[len(spells)-1], now
		switch {
		case wait >= 2*time.Second && !got:
			rt.Errorf("H14: a wait of %v is none", wait)
		case all < time.Second && got:
			rt.Errorf("H14: %v are most of a second", all)
		case got && waited(time.Second) == 0:
			rt.Error("H14: nobody has waited")
		case !got && all >= time.Second && waited(5*time.Second) >= min(all, 5*time.Second)-time.Millisecond:
			rt.Error("H14: nothing else was done")
		}
	})
}
