// SPDX-License-Identifier: Apache-2.0

// The part of the model that says what is not enforced (Q17, Q18), and what would have been.

package limiter

import (
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

func (m *model) setMode(mode decision.Mode) {
	if mode == m.mode {
		return
	}
	m.mode, m.lastFree = mode, m.now
	m.changes++
	m.serve()
}

// startDryRun starts a task in a dry run. The accepted are those in flight that would not have been rejected; as many as the
// target run, and the others would wait.
func (m *model) startDryRun(t *taskModel, try bool, draw float64) {
	accepted := 0
	for _, o := range m.all {
		if o.state == runs && !o.parked && o.would == "" {
			accepted++
		}
	}
	waiting := max(0, accepted-m.d.TargetConcurrency)
	t.would = m.judge(t, accepted, waiting, try, draw)
	m.start(t, "slot_free")
	t.queueLen = waiting
	if t.would != "" {
		t.cut = m.cut()
	}
}

func (m *model) judge(t *taskModel, accepted, waiting int, try bool, draw float64) decision.RejectionReason {
	left := t.due - m.now
	switch {
	case t.due != never && left <= 0:
		return decision.DeadlineExceeded
	case accepted < m.d.TargetConcurrency:
		m.lastFree = m.now
		return ""
	case m.d.TargetConcurrency == 0:
		return decision.PressureHigh
	case try:
		return decision.NoSlot
	case m.maxQueue == 0:
		return decision.QueueOverflow
	case t.due != never && !t.trial && left < m.d.Needs[t.name]:
		return decision.DeadlineExceeded
	}
	if why := m.shed(t.priority, waiting, draw); why != "" {
		return why
	}
	if waiting >= m.maxQueue {
		return decision.QueueOverflow
	}
	wait := m.d.Expected * time.Duration(waiting+1) / time.Duration(m.d.TargetConcurrency)
	if t.due != never && left < m.d.Expected+wait {
		return decision.DeadlineExceeded
	}
	stood := m.now - m.lastFree
	most := 5 * m.bound(0, m.d.Expected)
	if stood > max(m.burst(), m.d.Expected) {
		most = m.bound(stood, m.d.Expected)
	}
	if t.due == never && !t.patient && m.d.MaxWait > 0 && wait > most {
		return decision.MaxWaitExceeded
	}
	return ""
}
