// The part of the model that says when the queue of a priority stands, and what is known of the patience of a priority.

package limiter

import (
	"math"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// stands is whether the oldest of a priority has waited too long for a burst.
func (m *model) stands(p Priority) bool {
	all := m.of(p)
	return len(all) > 0 && m.now-all[0].since > max(m.burst(), m.expected())
}

func (m *model) burst() time.Duration {
	if m.d.Burst > 0 {
		return m.d.Burst
	}
	return decision.DefaultBurst
}

// An endModel is a task without a deadline that waits no more.
type endModel struct {
	priority   Priority
	at, waited time.Duration
	left       bool
}

func (m *model) ended(t *taskModel, left bool) {
	if t.untold {
		m.ends = append(m.ends, endModel{t.priority, m.now, m.now - t.since, left})
	}
}

func ageOf(i int) time.Duration {
	return time.Duration(1e6 * math.Exp2(float64(i)/4))
}

// rounded is the next age that is counted.
func rounded(d time.Duration) time.Duration {
	i := 0
	for ageOf(i) < d {
		i++
	}
	return ageOf(i)
}

// patience is the first age that no more than one in ten reach of those who are left to wait, if sixteen have left by then;
// ages are a millisecond and each quarter of a doubling. Of those who have reached an age, as many leave as have left. What was seen
// counts half after each two seconds on the clock, and who left sooner than a burst and twice the work last does not count. 0: it is not known.
func (m *model) patience(p Priority) time.Duration {
	half := func(at time.Duration) int { return int(at / (2 * time.Second)) }
	type end struct {
		age    time.Duration // as it is counted
		weight float64
		left   bool
	}
	var ends []end
	total := 0.0
	for _, e := range m.ends {
		if e.priority == p {
			ends = append(ends, end{rounded(e.waited), math.Ldexp(1, half(e.at)-half(m.now)), e.left})
		}
		if e.priority == p && e.left {
			total += ends[len(ends)-1].weight
		}
	}
	for _, w := range m.of(p) {
		if w.untold {
			ends = append(ends, end{rounded(m.now - w.since), 1, false})
		}
	}
	all, share := 0.0, 1.0
	for i := 0; i <= 80 && total >= 16; i++ {
		reach, left := 0.0, 0.0
		for _, e := range ends {
			if e.age >= ageOf(i) {
				reach += e.weight
			}
			if e.left && e.age == ageOf(i) {
				left += e.weight
			}
		}
		if left > 0 && ageOf(i) > m.burst()+2*m.d.Expected {
			all += left
			share *= 1 - left/reach
			if all >= 16 && share <= 0.1 {
				return ageOf(i)
			}
		}
	}
	return 0
}
