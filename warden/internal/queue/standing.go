// A standing queue: a priority that is not served as fast as it comes is served from its newest end.

package queue

import "time"

// A queue that is only a burst is gone in a moment, and first in, first out is fair. One that stays keeps everybody waiting for as
// long as they can bear, and serves those who are about to leave. From the newest end it serves those who can still be answered
// quickly; the others wait for the load to fall, until they leave, or until the queue is full and somebody newer comes. The ideas are those of
// adaptive LIFO (Maurer, "Fail at Scale", ACM Queue 2015) and, for when it begins, of CoDel (Nichols and Jacobson, "Controlling Queue Delay",
// ACM Queue 2012).

// stands is whether the oldest of a lane has waited for longer than a burst would have kept it waiting.
func (q *Queue[T]) stands(l *lane[T], now time.Duration, r Rule) bool {
	return l.oldest != nil && now-l.oldest.Since > max(r.Burst, r.Expected)
}
