// A standing queue: a priority that cannot be served in full keeps those only who will be served soon.

package queue

import "time"

// A priority's queue stands once its oldest has waited for so long that, served in order, all would be answered late: half of
// the time that it had, and at most longest. That much is also the wait to be allowed at first, and from then on a quarter of the
// time that has passed since is taken off, down to shortest. The ideas are those of CoDel (Nichols and Jacobson, "Controlling Queue
// Delay", ACM Queue 2012) and of adaptive LIFO (Maurer, "Fail at Scale", ACM Queue 2015).
//
// It stands no longer when a lower priority is granted a place, because then nobody of it waited; or when no more than one
// in refusedOf of those that came in a time checkEvery was refused for it.
const (
	longest    = time.Second
	shortest   = 20 * time.Millisecond
	checkEvery = 500 * time.Millisecond
	refusedOf  = 10
)

type standing struct {
	on            bool
	since, check  time.Duration // when it began, and when it is looked at next whether it goes on
	first         time.Duration // the wait to be allowed in the beginning
	came, refused int           // since it was looked at last
}

// allowed is the longest wait that a standing queue allows.
func (s *standing) allowed(now time.Duration) time.Duration {
	return max(min(shortest, s.first), s.first-(now-s.since)/4)
}

// judge decides whether the queue of a lane stands.
func (q *Queue[T]) judge(l *lane[T], now time.Duration) {
	s := &l.standing
	if s.on && now >= s.check {
		s.on = s.refused*refusedOf > s.came && now < s.check+checkEvery
		s.check, s.came, s.refused = now+checkEvery, 0, 0
	}
	if w := l.oldest; w != nil && !s.on {
		patience := q.StandAfter
		if patience == 0 {
			patience = min((w.Due-w.Since)/2, longest)
		}
		if now-w.Since > patience {
			*s = standing{on: true, since: now, check: now + checkEvery, first: patience}
		}
	}
}

// overdue is whether the queue of a lane stands, and its oldest has waited for longer than is allowed then.
func (q *Queue[T]) overdue(l *lane[T], now time.Duration) bool {
	q.judge(l, now)
	return l.standing.on && now-l.oldest.Since > l.standing.allowed(now)
}

// turnAway is whether an arrival is refused because the queue of its lane stands, and enough wait already: more would not be
// granted places in time. Those who have waited too long make room.
func (q *Queue[T]) turnAway(l *lane[T], now time.Duration) bool {
	q.judge(l, now)
	s := &l.standing
	if !s.on {
		return false
	}
	s.came++
	allowed := s.allowed(now)
	for w := l.oldest; w != nil && !w.spared && now-w.Since > allowed; w = l.oldest {
		if q.mercy() {
			q.spare(w)
			break
		}
		s.refused++
		q.leave(w, Stands, now)
	}
	if l.waiting == 0 || time.Duration(q.before(l)+1)*q.gap <= allowed {
		return false
	}
	s.refused++
	return true
}

// before is how many wait in front of an arrival of lane l.
func (q *Queue[T]) before(l *lane[T]) (waiting int) {
	for _, higher := range q.lanes {
		waiting += higher.waiting
		if higher == l {
			break
		}
	}
	return waiting
}

// servedInFull ends the standing of all lanes above l, of which somebody was granted a place in the order of priorities.
func (q *Queue[T]) servedInFull(l *lane[T]) {
	for _, higher := range q.lanes {
		if higher == l {
			return
		}
		higher.standing.on = false
	}
}
