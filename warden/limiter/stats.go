// What a limiter knows about itself, and how it ends.

package limiter

// Stats are a limiter's counters. Submitted = Executed + Rejected + Canceled + Queued + Running, as soon as no call and no
// release is under way.
type Stats struct {
	Submitted uint64 // calls of Acquire, TryAcquire and Do that were no mistake of the caller's
	Executed  uint64 // tasks whose permit was released
	Rejected  uint64 // tasks refused for any reason but Canceled
	Canceled  uint64 // tasks whose context was canceled before they started
	Queued    int    // tasks that wait now: QueueLen of an explanation
	Running   int    // tasks that hold a place now: InFlight of an explanation
	// Target is the TargetConcurrency that rules.
	Target int
	// ForeignPanics counts panics of the Observer and of Slots that were contained.
	ForeignPanics uint64

	byReason [reasons]uint64
}

// RejectedFor is how many tasks were refused for this reason.
func (s Stats) RejectedFor(r Reason) uint64 {
	if r >= reasons {
		return 0
	}
	return s.byReason[r]
}

// Stats reads the counters. It may wait for a mutex that is held for microseconds, and allocates nothing.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.state.Load()
	s := Stats{Executed: l.executed(), Running: running(w), Target: target(w), ForeignPanics: l.panics.Load()}
	if l.queue != nil {
		s.Queued = l.queue.waiting
	}
	for r := range reasons {
		s.byReason[r] = l.refused[r].Load()
		s.Rejected += s.byReason[r]
	}
	s.Canceled = s.byReason[Canceled]
	s.Rejected -= s.Canceled
	s.Submitted = s.Executed + s.Rejected + s.Canceled + uint64(s.Queued) + uint64(s.Running)
	return s
}

// Close refuses all that waits and all that comes later, as Closed. What runs goes on, and its permits are released as
// ever. Closing again, or closing the zero Limiter, changes nothing. Close does not block.
func (l *Limiter) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ruling.Load() == nil || l.state.Or(closed)&closed != 0 {
		return
	}
	for l.queue != nil && l.queue.waiting > 0 {
		l.dismiss(l.queue.oldest(), Closed, l.clock(), 0)
	}
}
