// Patience: how long a task waits that has no deadline, learned from those like it who have left.

package queue

import (
	"math"
	"time"
)

// Of a priority's tasks without a deadline, and not counting those that were started before: the age at which nine in ten
// have left of their own accord, if sixteen have. One in ten who stays longer is enough to forbid the thought, so those who
// leave at once, and have their reasons, do not speak for others who would wait. What was learned is forgotten within
// seconds, because tasks that are sent away at an age no longer show that they would have left then.
const (
	leavers   = 16
	perStayer = 9
	memory    = 2 * time.Second // after which what was seen counts half

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
func (l *lane[T]) patience(now time.Duration) time.Duration {
	p := &l.learned
	if p.fade(now); p.total < leavers {
		return 0
	}
	longer := p.total // who waited longer than the age that is looked at
	for _, n := range p.stayed {
		longer += n
	}
	left := 0.0
	for i := range ages {
		left += p.left[i]
		longer -= p.left[i] + p.stayed[i]
		if age := ageOf(i); left >= leavers && left >= perStayer*longer && left >= perStayer*(longer+l.older(age, now, left)) {
			return age
		}
	}
	return 0
}

// older is how many without a deadline have waited for longer than age, and wait still; no need to count beyond enough.
func (l *lane[T]) older(age, now time.Duration, enough float64) (n float64) {
	for w := l.oldest; w != nil && now-w.Since > age && n <= enough; w = w.newer {
		if w.untold {
			n++
		}
	}
	return n
}

// rangeOf is the range of an age, and ageOf the greatest age of a range.
func rangeOf(d time.Duration) int {
	if d <= youngest {
		return 0
	}
	i := int(math.Ceil(perDoubling * math.Log2(float64(d)/float64(youngest))))
	return min(i, ages-1)
}

func ageOf(i int) time.Duration {
	return time.Duration(float64(youngest) * math.Exp2(float64(i)/perDoubling))
}
