// The part of the model that says when a priority is behind, and what it keeps then.

package limiter

import (
	"time"
)

// An arrearsModel is what is known of a priority that is behind.
type arrearsModel struct {
	since, check, longest time.Duration
	came, refused         int
}

// longest is the longest wait to be allowed in a priority that is behind; 0: it is not.
func (m *model) longest(p Priority) time.Duration {
	const half = 500 * time.Millisecond
	a := m.behind[p]
	if a != nil && m.now >= a.check {
		if 10*a.refused <= a.came || m.now-a.check >= half {
			delete(m.behind, p)
		}
		a.check, a.came, a.refused = m.now+half, 0, 0
	}
	if all := m.of(p); m.behind[p] == nil && len(all) > 0 {
		patience := min((all[0].due-all[0].since)/2, time.Second)
		if m.now-all[0].since > patience {
			m.behind[p] = &arrearsModel{since: m.now, check: m.now + half, longest: patience}
		}
	}
	if a = m.behind[p]; a == nil {
		return 0
	}
	return max(min(20*time.Millisecond, a.longest), a.longest-(m.now-a.since)/4)
}

func (m *model) turnAway(p Priority) bool {
	longest := m.longest(p)
	if longest == 0 {
		return false
	}
	a := m.behind[p]
	a.came++
	for _, w := range m.of(p) {
		if w.spared || m.now-w.since <= longest {
			break
		}
		if m.mercy() {
			w.spared = true
			break
		}
		m.leave(w)
		m.refuse(w, QueueOverflow)
		a.refused++
	}
	first := 1
	for _, w := range m.waiting {
		if w.priority >= p {
			first++
		}
	}
	if len(m.of(p)) == 0 || time.Duration(first)*m.gap <= longest {
		return false
	}
	a.refused++
	return true
}
