// A standing queue: a priority that is not served in full is served from its newest end.

package queue

import "time"

const (
	longest  = time.Second
	shortest = 25 * time.Millisecond
)

// stands is whether the oldest of a lane has waited for longer than a queue does that is only a burst.
func (q *Queue[T]) stands(l *lane[T], now, expected time.Duration) bool {
	w := l.oldest
	if w == nil {
		return false
	}
	patience := q.StandAfter
	switch {
	case patience > 0:
	case w.Due == Never:
		patience = max(shortest, expected)
	default:
		patience = min((w.Due-w.Since)/2, max(longest, expected))
	}
	return now-w.Since > patience
}
