// SPDX-License-Identifier: Apache-2.0

// What runs, in the order of its starts, so that what has run for longest is at hand (Q21).

package limiter

import "time"

// Running is a task that holds a slot.
type Running struct {
	Task Task
	// For is how long it has held its slot, at least (Q21).
	For time.Duration
}

// LongestRunning returns up to n of the running tasks, those that started first, in the order of their starts; nil if n is 0 or
// less, nothing runs, or l is nil or zero. Where a limit is full and nothing ends, they say what hangs. It may wait microseconds
// for a mutex and allocates the slice.
func (l *Limiter) LongestRunning(n int) []Running {
	if !l.valid() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	l.seeLocked(now)
	var all []Running
	for s := l.first; s != nil && len(all) < n; s = s.newer {
		all = append(all, Running{s.task, now - s.seen})
	}
	return all
}

// runLocked appends a task that starts. The time of the start is noted for an observer, who is told how long the task took, and for a tenant. Else
// it is left to the first look at the limiter: reading the clock would cost such a start half as much again.
func (l *Limiter) runLocked(s *slot) {
	s.seen, s.older, s.newer = 0, l.last, nil
	if l.last == nil {
		l.first = s
	} else {
		l.last.newer = s
	}
	l.last = s
	if l.observer != nil || s.tenant != nil {
		s.seen = l.clock()
	}
}

// endLocked removes a task that has ended.
func (l *Limiter) endLocked(s *slot) {
	if s.older == nil {
		l.first = s.newer
	} else {
		s.older.newer = s.newer
	}
	if s.newer == nil {
		l.last = s.older
	} else {
		s.newer.older = s.older
	}
}

// seeLocked is a look: it notes the time for all that started since the last one. It takes one step for each of them, once.
func (l *Limiter) seeLocked(now time.Duration) {
	for s := l.last; s != nil && s.seen == 0; s = s.older {
		s.seen = now
	}
}

// oldestLocked returns for how long the oldest running task has held its slot, at least; 0: none runs. Who calls it may have read
// the clock before the lock.
func (l *Limiter) oldestLocked(now time.Duration) time.Duration {
	l.seeLocked(now)
	if l.first == nil {
		return 0
	}
	return max(0, now-l.first.seen)
}
