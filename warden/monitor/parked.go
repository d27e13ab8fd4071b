// SPDX-License-Identifier: Apache-2.0

// Executions that wait for something else than work: for events to tell their clients, or for their clients.

package monitor

import "time"

// afresh is how many executions of a kind have to be found only to wait, after one that worked, before the next is believed at once.
const afresh = 16

// Park says that the execution has begun its answer, and only waits for events from now on: it counts in Service.Parked, not in
// Service.Concurrency and not as long (M13), and its execution time is that until now. It reports whether that is so: not for an
// execution that has ended, nor where others of its kind worked until they ended ([Span.Worked]). Then ask again when it is sure that
// it only waits for events: it is parked, unless it waits for its client, and 16 such end what Worked has said.
func (s Span) Park() bool {
	r, w := s.r, s.run
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case w.number != s.number:
		return false
	case w.parked:
	case w.kind.working > 0 && (!w.held || w.awaits > 0):
		w.held = true
		return false
	default:
		w.kind.working = max(0, w.kind.working-1)
		w.kind.awaiting -= min(w.awaits, 1)
		w.kind.unlink(w)
		w.kind.parked++
		w.parked, w.awaits, w.began = true, 0, r.advanceLocked(time.Since(r.epoch))
		r.parked++
	}
	return true
}

// Worked says that the execution worked all the time until it ended, although it has begun its answer early: so will others of its
// kind, until 16 are found only to wait. Call it before the end.
func (s Span) Worked() {
	if s.r == nil {
		return
	}
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if s.run.number == s.number {
		s.run.kind.working = afresh
	}
}

// Await says that the execution waits for its client until [Span.Resume], or for another part of him: it is long meanwhile (M7),
// however long it has run.
func (s Span) Await() { s.await(1) }

// Resume ends one Await.
func (s Span) Resume() { s.await(-1) }

func (s Span) await(by int) {
	r, w := s.r, s.run
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.number != s.number || w.parked {
		return
	}
	before := min(w.awaits, 1)
	w.awaits = max(0, w.awaits+by)
	w.kind.awaiting += min(w.awaits, 1) - before
}
