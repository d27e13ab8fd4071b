// SPDX-License-Identifier: Apache-2.0

package slot

import (
	"sync"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/monitor"
)

const (
	// worked is how many parts an answer has, at least, and one a second, whose handler worked until it had ended it: a model that
	// writes, say. A stream that waits for events is ended by its client, or seldom has any.
	worked = 8
	// look is how often a stream is looked at that holds its slot because others of its route worked. One that seldom has had any
	// events by then, or has not ended for lasting, is none of those.
	look    = 30 * time.Second
	lasting = 10 * time.Minute
)

// Stream follows the answer of a request that goes on for as long as its client likes. A nil *Stream is none.
type Stream struct {
	mu    sync.Mutex // guards all below
	began time.Time  // with the first part; zero: it has not
	since time.Time  // when the parts are counted from
	sent  int
	asked bool // the client has said all that he has to say

	parked, over bool
	timer        *time.Timer // to look at it; nil: it was parked at once, or cannot be
}

// Sent says that a part of the answer, or its header, has left. From the first on, the slot is others'.
func (s *Stream) Sent(by *Slot) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent++; !s.began.IsZero() || s.over {
		return
	}
	s.began = time.Now()
	s.since = s.began
	of := by.warden
	if s.parked = of.Park(); !s.parked && of.Span() != (monitor.Span{}) {
		s.timer = time.AfterFunc(look, func() { s.look(of) })
	}
}

// Asked says that the client has said all that he has to say. A handler that ends its answer then does so for its client, unless it
// sends him many more parts.
func (s *Stream) Asked() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asked {
		s.asked, s.sent, s.since = true, 0, time.Now()
	}
}

// look parks a stream that only waits.
func (s *Stream) look(of warden.Permit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	if !s.busyLocked() || time.Since(s.began) >= lasting {
		s.parked = of.Park()
	}
	if !s.parked {
		s.timer.Reset(look)
	}
}

// Parked reports whether the stream has no slot that others could need.
func (s *Stream) Parked() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parked
}

func (s *Stream) busyLocked() bool { return s.sent >= max(worked, int(time.Since(s.since).Seconds())) }

// Ended says that the request has ended, before the slot is released. well: its handler has ended the answer, of itself and well.
func (s *Stream) Ended(by *Slot, well bool) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over = true; s.timer != nil {
		s.timer.Stop()
	}
	if well && !s.began.IsZero() && s.busyLocked() {
		by.span().Worked()
	}
}

// Await says that the request waits for its client until Resume.
func (p Slot) Await() { p.span().Await() }

// Resume ends an Await.
func (p Slot) Resume() { p.span().Resume() }

func (p Slot) span() monitor.Span {
	if span := p.warden.Span(); span != (monitor.Span{}) {
		return span
	}
	return p.compartment.Span()
}
