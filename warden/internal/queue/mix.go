// SPDX-License-Identifier: Apache-2.0

// The recent mix of priorities, and the priority at which a share to be shed ends.

package queue

import (
	"math"
	"slices"
	"time"
)

// A task that would have to wait counts one in the mix of its priority. Counts are halved whenever the mix is full and
// whenever halfLife has passed, so it describes the last thousand or two, and the last seconds.
const (
	fullMix  = 2048
	halfLife = 10 * time.Second
	lowest   = -128
	highest  = 127
)

func (q *Queue[T]) count(l *lane[T], now time.Duration) {
	if lives := int((now - q.halved) / halfLife); lives > 0 {
		q.fade(math.Ldexp(1, -lives))
		q.halved += time.Duration(lives) * halfLife
	}
	if q.mix >= fullMix {
		q.fade(0.5)
	}
	l.mix++
	q.mix++
}

func (q *Queue[T]) fade(by float64) {
	for _, l := range q.lanes {
		l.mix *= by
	}
	q.mix *= by
}

// Cut returns the priority at which a share of the mix, counted from the lowest priority, ends: lower priorities are shed
// entirely, and of the cut priority the fraction part. Without a share the cut is the lowest priority; with all of the mix it
// is the highest one, shed entirely.
func (q *Queue[T]) Cut(share float64) (priority int8, part float64) {
	left := share * q.mix
	if left <= 0 {
		return lowest, 0
	}
	for _, l := range slices.Backward(q.lanes) {
		if left < l.mix {
			return l.priority, left / l.mix
		}
		left -= l.mix
	}
	return highest, 1
}
