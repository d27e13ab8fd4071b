// Patience: how long a task waits that has no deadline, learned from those like it who have left.

package queue

import (
	"math"
	"time"
)

// The patience of a priority is the age that one in ten reaches of those who are left to wait: the others leave before, of their own
// accord. It is estimated from those without a deadline as Kaplan and Meier (1958) did from patients: at each age, of those who
// have waited for so long, as many leave as left, and those who were started or sent away before say nothing about later.
// So one in ten who stays is enough to forbid the thought. And who leaves sooner than a burst and twice the work last could
// hardly have been answered, and teaches nothing. Those who leave at once, whatever their reasons, do not speak for others
// who would wait. What was learned is forgotten within seconds, because tasks that are sent away at an age no longer show
// that they would have left then.
const (
	leavers = 16
	remain  = 0.1
	memory  = 2 * time.Second // after which what was seen counts half

	// Ages are counted in ranges: up to a millisecond, and from there four for each doubling, to a quarter of an hour.
	youngest    = time.Millisecond
	perDoubling = 4
	ages        = 1 + 20*perDoubling
)

// patience counts how long those without a deadline have waited.
type patience struct {
	left, stayed [ages]float64 // who left of his own accord, and who was started or refused
	total        float64       // sum of left
	halved       time.Duration
}

// ended counts one of them.
func (p *patience) ended(waited time.Duration, left bool, now time.Duration) {
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

// patience is how long a task in l that has no deadline will wait, 0 if that is not known.
func (l *lane[T]) patience(now time.Duration, r Rule) time.Duration {
	l.learned.fade(now)
	least := r.Burst + 2*r.Expected
	var waiting [ages]float64
	if l.learned.total < leavers || l.learned.estimate(&waiting, least) == 0 {
		return 0 // whoever waits still could only make it longer
	}
	i, younger := ages-1, ageOf(ages-2)
	for w := l.oldest; w != nil; w = w.newer {
		for i > 0 && now-w.Since <= younger {
			i--
			younger = ageOf(i - 1)
		}
		if w.untold {
			waiting[i]++
		}
	}
	return l.learned.estimate(&waiting, least)
}

// estimate is the first age that no more than remain reach, if enough have left by then; 0: there is none.
func (p *patience) estimate(waiting *[ages]float64, least time.Duration) time.Duration {
	reach := 0.0 // how many have reached the age that is looked at
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

// ageOf is the greatest age of a range.
func ageOf(i int) time.Duration {
	return time.Duration(float64(youngest) * math.Exp2(float64(i)/perDoubling))
}

// rangeOf is the range of an age; what is older than the last one counts there.
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
