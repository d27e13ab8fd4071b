// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"testing"
	"time"
)

// TestManySlotsForYears: an owner that has used the slots alone for three centuries, which a thousand of them come to in four
// months, still shares with one that comes.
func TestManySlotsForYears(t *testing.T) {
	got := map[string]int{}
	var granted []*waiter
	s := newSlots(Config{MaxInFlight: 1, AttemptTimeout: maxPause})
	join := func(owner string) *waiter {
		w := s.join(owner, &account{})
		w.wake = func() {
			got[owner]++
			granted = append(granted, w)
		}
		return w
	}
	use := func(took time.Duration) {
		w := granted[0]
		granted = granted[1:]
		w.request(false)
		if next := w.release(took); next != nil {
			next.wake()
		}
	}
	join("alone").request(false)
	for range 300 {
		use(maxPause)
	}
	join("other").request(false)
	clear(got)
	for range 100 {
		use(time.Second)
	}
	if got["alone"] != 50 || got["other"] != 50 {
		t.Errorf("D11: of 100 records that take the same: %v, want half each", got)
	}
}
