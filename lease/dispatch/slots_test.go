package dispatch

import (
	"testing"
	"time"
)

// TestManySlotsForYears: an owner who has used the slots alone for three centuries, which a thousand of them come to in four months,
// still shares with whoever comes.
func TestManySlotsForYears(t *testing.T) {
	got := map[string]int{}
	var has []*line
	s := newSlots(Config{MaxInFlight: 1, AttemptTimeout: maxPause})
	join := func(owner string) *line {
		l := s.join(owner, &share{})
		l.wake = func() {
			got[owner]++
			has = append(has, l)
		}
		return l
	}
	use := func(took time.Duration) {
		l := has[0]
		has = has[1:]
		l.request(false)
		if next := l.give(took); next != nil {
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
