// Patience: how long the client of a task without a deadline waits, learned from tasks like it whose clients left.

package queue

import (
	"math"
	"time"
)

// The patience of a priority is the queue wait that one in ten tasks reaches before its client leaves. It is the estimate of
// Kaplan and Meier (1958) over tasks without a deadline: at each wait, the share of the tasks still waiting whose clients
// left; tasks that started or were rejected earlier say nothing about longer waits. So if one client in ten stays, no
// patience is assumed. Clients that leave within a burst and twice the expected execution time do not count: they could
// hardly have been answered, and do not speak for those that would wait. The counts are halved every two seconds, because
// tasks rejected at a wait no longer show whether their clients would have left then.
const (
	leavers = 16
	remain  = 0.1
	memory  = 2 * time.Second // half-life of the counts

	// Waits are counted in ranges: up to a millisecond, and from there four per doubling, up to a quarter of an hour.
	youngest    = time.Millisecond
	perDoubling = 4
	ages        = 1 + 20*perDoubling
)

// patience counts the queue waits of tasks without a deadline.
type patience struct {
	left, stayed [ages]float64 // whose client left, and who started or was rejected
	total        float64       // sum of left
	halved       time.Duration
}

// record counts a task that waits no longer.
func (p *patience) record(waited time.Duration, left bool, now time.Duration) {
	p.fade(now)
	if i := rangeOf(waited); left {
		p.left[i]++
		p.total++
	} else {
		p.stayed[i]++
	}
}

func (p *patience) fade(now time.Duration) {
	lives := int((now - p.halved) / memory)
	if lives <= 0 {
		return
	}
	p.halved += time.Duration(lives) * memory
	by := math.Ldexp(1, -lives)
	p.total *= by
	for i := range ages {
		p.left[i] *= by
		p.stayed[i] *= by
	}
}

// patience returns the wait after which the client of a task in l leaves; 0: unknown.
func (l *lane[T]) patience(now time.Duration, r Rule) time.Duration {
	l.learned.fade(now)
	least := r.Burst + 2*r.Expected
	var waiting [ages]float64
	if l.learned.total < leavers || l.learned.estimate(&waiting, least) == 0 {
		return 0 // tasks that still wait could only make it longer
	}
	i, younger := ages-1, ageOf(ages-2)
	for w := l.oldest; w != nil; w = w.newer {
		for i > 0 && now-w.Since <= younger {
			i--
			younger = ageOf(i - 1)
		}
		if w.noDeadline {
			waiting[i]++
		}
	}
	return l.learned.estimate(&waiting, least)
}

// estimate returns the first wait that no more than the fraction remain reaches, if enough clients have left by then; 0: none.
func (p *patience) estimate(waiting *[ages]float64, least time.Duration) time.Duration {
	reach := 0.0 // tasks that have waited for at least age
	for i := range ages {
		reach += p.left[i] + p.stayed[i] + waiting[i]
	}
	left, share := 0.0, 1.0
	for i := range ages {
		age := ageOf(i)
		if p.left[i] > 0 && age > least {
			left += p.left[i]
			share *= 1 - p.left[i]/reach
			if left >= leavers && share <= remain {
				return age
			}
		}
		reach -= p.left[i] + p.stayed[i] + waiting[i]
	}
	return 0
}

// ageOf returns the upper bound of a range.
func ageOf(i int) time.Duration {
	return time.Duration(float64(youngest) * math.Exp2(float64(i)/perDoubling))
}

// rangeOf returns the range of a wait; longer ones count in the last.
func rangeOf(d time.Duration) int {
	i := 0
	if d > 2*youngest { // the logarithm may be off by a little
		i = min(int(perDoubling*math.Log2(float64(d)/float64(youngest)))-1, ages-1)
	}
	for i < ages-1 && ageOf(i) < d {
		i++
	}
	return i
}
