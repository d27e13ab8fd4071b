// SPDX-License-Identifier: Apache-2.0

// A standing queue: a priority that is not served as fast as it comes is served from its newest end, and who waits there is told
// soon.

package queue

import "time"

// A burst drains in a moment, and first in, first out is fair. In a queue that stays, first in, first out starts the tasks
// whose clients are about to give up; from the newest end, it starts tasks that can still be answered quickly. The others
// wait until the load falls, the queue is full and a newer task arrives, or they have waited long enough. This is adaptive LIFO
// (Maurer, "Fail at Scale", ACM Queue 2015) with CoDel's criterion for when it begins, and its idea that what stands for longer
// is to be shortened further (Nichols and Jacobson, "Controlling Queue Delay", ACM Queue 2012).

// stands reports whether the oldest task of a lane has waited longer than a burst lasts.
func (q *Queue[T]) stands(l *lane[T], now time.Duration, r Rule) bool {
	return l.oldest != nil && now-l.oldest.Since > max(r.Burst, r.Expected)
}

// Early returns how long a task may wait that came before the queue stood; 0: for ever. A burst drains, and what is left of it after
// five times as long as who comes later may wait is none.
func (r Rule) Early() time.Duration { return 5 * MaxWait(0, r) }

// Bound has those leave whose wait nothing bounded when they came, and who have waited for as long as r, a later rule, allows.
func (q *Queue[T]) Bound(now time.Duration, r Rule) {
	most := r.Early()
	for _, l := range q.lanes {
		for w := l.oldest; most > 0 && w != nil && now-w.Since >= most; {
			was := w
			if w = w.newer; was.MaxWait == 0 && was.Due == Never && !was.Patient {
				was.later = most
				q.leave(was, Overstayed, now)
			}
		}
	}
}

// MaxWait returns how long a task may wait in a queue that has not been empty for so long; 0: for ever. The longer that is, the
// less hope there is of a lull in which old tasks are served, and what a shorter lull needs is little.
func MaxWait(stood time.Duration, r Rule) time.Duration {
	if r.MaxWait <= 0 {
		return 0
	}
	most := float64(r.MaxWait)
	return max(time.Duration(most/(1+float64(stood)/most)), 2*r.Burst, r.Expected)
}
