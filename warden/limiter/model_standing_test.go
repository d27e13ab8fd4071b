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
	return len(all) > 0 && m.now-all[0].since > max(m.burst(), m.d.Expected)
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

// patience is the age at which nine in ten have left of those who were not started before, if sixteen have; ages are a
// millisecond and each quarter of a doubling. What was seen counts half after each two seconds on the clock. 0: it is not known.
func (m *model) patience(p Priority) time.Duration {
	half := func(at time.Duration) int { return int(at / (2 * time.Second)) }
	for i := range 81 {
		age := time.Duration(1e6 * math.Exp2(float64(i)/4))
		left, longer := 0.0, 0.0
		for _, e := range m.ends {
			weight := math.Ldexp(1, half(e.at)-half(m.now))
			switch {
			case e.priority != p:
			case e.waited > age:
				longer += weight
			case e.left:
				left += weight
			}
		}
		for _, w := range m.of(p) {
			if w.untold && m.now-w.since > age {
				longer++
			}
		}
		if left >= 16 && left >= 9*longer {
			return age
		}
	}
	return 0
}
