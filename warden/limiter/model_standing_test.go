// SPDX-License-Identifier: Apache-2.0

// The part of the model that says when the queue of a priority stands, and how long one may wait there.

package limiter

import (
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// stands is whether the oldest of a priority has waited too long for a burst.
func (m *model) stands(p decision.Priority) bool {
	all := m.of(p)
	return len(all) > 0 && m.now-all[0].since > max(m.burst(), m.expected())
}

func (m *model) burst() time.Duration {
	if m.d.Burst > 0 {
		return m.d.Burst
	}
	return 25 * time.Millisecond
}

// maxWait is how long one who comes may wait: in a queue that stands less, the longer somebody has waited there without a break.
func (m *model) maxWait(p decision.Priority) time.Duration {
	if m.d.MaxWait == 0 {
		return 0
	}
	if !m.stands(p) {
		return 5 * m.bound(0, m.expected())
	}
	return m.bound(m.now-m.empty[p], m.expected())
}

// bound is the longest wait in a queue that has not been empty for so long.
func (m *model) bound(stood, expected time.Duration) time.Duration {
	times := float64(stood) / float64(m.d.MaxWait)
	return max(time.Duration(float64(m.d.MaxWait)/(1+times)), 2*m.burst(), expected)
}
