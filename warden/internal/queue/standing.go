// A standing queue: a priority that is not served as fast as it comes is served from its newest end.

package queue

import "time"

// A burst drains in a moment, and first in, first out is fair. In a queue that stays, first in, first out starts the tasks
// whose clients are about to give up; from the newest end, it starts tasks that can still be answered quickly. The others
// wait until the load falls, their clients leave, or the queue is full and a newer task arrives. This is adaptive LIFO
// (Maurer, "Fail at Scale", ACM Queue 2015) with CoDel's criterion for when it begins (Nichols and Jacobson, "Controlling
// Queue Delay", ACM Queue 2012).

// stands reports whether the oldest task of a lane has waited longer than a burst lasts.
func (q *Queue[T]) stands(l *lane[T], now time.Duration, r Rule) bool {
	return l.oldest != nil && now-l.oldest.Since > max(r.Burst, r.Expected)
}
