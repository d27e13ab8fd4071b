// SPDX-License-Identifier: Apache-2.0

// The naive model of a limiter, written from the contract alone: a list of those who wait, a list of those who came, and
// loops over them.

package limiter

import (
	"math"
	"slices"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// A taskModel is one task and how far it has come.
type taskModel struct {
	id       int
	name     string
	trial    bool // nothing counts as known of its kind
	priority decision.Priority
	due      time.Duration // never: none
	patient  bool
	maxWait  time.Duration // 0: nothing bounds its wait
	since    time.Duration
	leaveAt  time.Duration // when it is looked at again whether it can still make its deadline
	spared   bool

	state         taskState
	parked        bool // it runs without a slot
	abandoned     bool // it ended without an answer
	failed        bool // it ended with an error of the service
	grant         decision.Grant
	reason        decision.RejectionReason
	would         decision.RejectionReason
	mode          decision.Mode
	waited        time.Duration
	decision      decision.ControlDecision
	decisionState decision.DecisionState
	inFlight      int
	queueLen      int
	cut           decision.Priority
}

// late is why it leaves, at its deadline or after the longest wait.
func (t *taskModel) late() decision.RejectionReason {
	if t.maxWait > 0 {
		return decision.MaxWaitExceeded
	}
	return decision.DeadlineExceeded
}

// over is whether it may not wait any more: less is left than it needs, or it has waited for as long as it may.
func (t *taskModel) over(now, need time.Duration) bool {
	return t.due != never && (t.due <= now || t.due-now < need) || t.maxWait > 0 && now-t.since >= t.maxWait
}

type taskState int

const (
	waits taskState = iota
	runs
	ended // it ran, and was released
	rejected
)

type model struct {
	maxQueue, every int

	now           time.Duration
	seq           uint64
	d             decision.ControlDecision
	decisionState decision.DecisionState
	staleAt       time.Duration // never: it holds
	closed        bool
	mode          decision.Mode
	changes       uint64                              // of the mode
	running       int                                 // with a slot
	parked        int                                 // without one
	waiting       []*taskModel                        // in order of arrival
	mix           []mixModel                          // of all that had to wait
	empty         map[decision.Priority]time.Duration // when nobody of it waited last
	lastFree      time.Duration                       // when a task last found a slot free in a dry run, or the mode changed
	turns         int
	denied        int
	all           []*taskModel
}

// need is what of its deadline a task that waits must have left, as far as that is known.
func (m *model) need(t *taskModel) time.Duration {
	if m.mode == decision.Enforce && !t.trial {
		return m.d.Needs[t.name]
	}
	return 0
}

// expected is how long work takes, as far as it matters.
func (m *model) expected() time.Duration {
	if m.mode != decision.Enforce {
		return 0
	}
	return m.d.Expected
}

func (m *model) canStart() bool {
	return !m.closed && (m.mode != decision.Enforce || m.running < m.d.TargetConcurrency)
}

// stamp notes how things stand.
func (m *model) stamp(t *taskModel) {
	t.decision, t.decisionState, t.mode = m.d, m.decisionState, m.mode
	t.inFlight, t.queueLen = m.running, len(m.waiting)
	t.cut = m.cut()
}

func (m *model) start(t *taskModel, how decision.Grant) {
	m.running++
	t.state, t.grant, t.waited = runs, how, m.now-t.since
	m.stamp(t)
	if how == "slot_free" {
		t.cut = -128
	}
}

func (m *model) reject(t *taskModel, why decision.RejectionReason) {
	t.state, t.reason, t.waited = rejected, why, m.now-t.since
	m.stamp(t)
}

// A mixModel is a task that had to wait. It counts half after each ten seconds on the clock.
type mixModel struct {
	priority decision.Priority
	at       time.Duration
}

// mixed is how much of the mix has a priority of which ok says so.
func (m *model) mixed(ok func(decision.Priority) bool) (sum float64) {
	for _, e := range m.mix {
		if ok(e.priority) {
			sum += math.Ldexp(1, int(e.at/(10*time.Second))-int(m.now/(10*time.Second)))
		}
	}
	return sum
}

// cut is the lowest priority that is not wholly in the share to be shed.
func (m *model) cut() decision.Priority {
	share := m.d.ShedProbability * m.mixed(func(decision.Priority) bool { return true })
	if share == 0 {
		return -128
	}
	for _, p := range priorities { // all that there are in a machine, lowest first
		if m.mixed(func(q decision.Priority) bool { return q <= p }) > share {
			return p
		}
	}
	return decision.Critical
}

func (m *model) shed(p decision.Priority, waiting int, draw float64) decision.RejectionReason {
	m.mix = append(m.mix, mixModel{p, m.now})
	below := m.mixed(func(q decision.Priority) bool { return q < p })
	same := m.mixed(func(q decision.Priority) bool { return q == p })
	share := m.d.ShedProbability * m.mixed(func(decision.Priority) bool { return true })
	switch {
	case below+same <= share:
		return decision.PressureHigh
	case waiting == 0 || p == decision.Critical && !m.stands(p):
		return ""
	case below < share && draw < (share-below)/same:
		return decision.ProbabilisticShedding
	}
	return ""
}

func (m *model) mercy() bool {
	if m.every == 0 {
		return false
	}
	spared := 0
	for _, w := range m.waiting {
		if w.spared {
			spared++
		}
	}
	m.denied++
	if m.denied < m.every || spared > 0 && spared >= m.maxQueue/m.every {
		return false
	}
	m.denied = 0
	return true
}

// victim is the youngest of the lowest priority that may be evicted.
func (m *model) victim() (v *taskModel) {
	for _, w := range m.waiting {
		if !w.spared && (v == nil || w.priority <= v.priority) {
			v = w
		}
	}
	return v
}

func (m *model) submit(t *taskModel, try bool, draw float64) {
	t.since, t.state = m.now, waits
	m.all = append(m.all, t)
	switch {
	case m.mode == decision.DryRun && !m.closed:
		m.startDryRun(t, try, draw)
		return
	case m.mode == decision.Bypass && !m.closed:
		m.start(t, "slot_free")
		return
	case m.mode == decision.Enforce && t.due <= m.now:
		m.reject(t, decision.DeadlineExceeded)
		return
	case len(m.waiting) == 0 && m.canStart():
		m.start(t, "slot_free")
		return
	case m.closed:
		m.reject(t, decision.Closed)
		return
	case (try || m.maxQueue == 0) && m.d.TargetConcurrency == 0:
		m.reject(t, decision.PressureHigh)
		return
	case try:
		m.reject(t, decision.NoSlot)
		return
	case m.maxQueue == 0:
		m.reject(t, decision.QueueOverflow)
		return
	case t.due != never && t.due-m.now < m.need(t): // nothing is free, and it could not wait for long
		m.reject(t, decision.DeadlineExceeded)
		return
	}
	if why := m.shed(t.priority, len(m.waiting), draw); why != "" {
		t.spared = m.mercy()
		v := m.victim()
		switch {
		case t.spared:
		case why == decision.ProbabilisticShedding && v != nil && v.priority < t.priority:
			m.leave(v)
			m.reject(v, decision.PressureHigh)
		default:
			m.reject(t, why)
			return
		}
	}
	if len(m.waiting) == m.maxQueue && !m.makeRoom(t) {
		m.reject(t, decision.QueueOverflow)
		return
	}
	if t.due == never && !t.patient {
		t.maxWait = m.maxWait(t.priority)
	}
	if len(m.of(t.priority)) == 0 {
		m.empty[t.priority] = m.now
	}
	t.leaveAt = m.leaveAt(t)
	m.waiting = append(m.waiting, t)
}

func (m *model) makeRoom(t *taskModel) bool {
	v := m.victim()
	less := v != nil && v.priority < t.priority
	if same := m.of(t.priority); !t.spared && !less && m.stands(t.priority) && !same[0].spared {
		m.leave(same[0])
		m.reject(same[0], decision.QueueOverflow)
		return true
	}
	if !t.spared && m.every > 0 && m.mercy() {
		if less {
			v.spared = true
			v = m.victim()
			less = v != nil && v.priority < t.priority
		} else {
			t.spared = true
		}
	}
	if v == nil || !less && !t.spared {
		return false
	}
	m.leave(v)
	m.reject(v, decision.PriorityDrop)
	return true
}

func (m *model) leave(t *taskModel) {
	m.waiting = slices.DeleteFunc(m.waiting, func(w *taskModel) bool { return w == t })
}

func (m *model) leaveAt(t *taskModel) time.Duration {
	switch {
	case t.maxWait > 0:
		return t.since + t.maxWait
	case t.due == never:
		return never
	case m.need(t) == 0:
		return t.due
	}
	return t.due - m.need(t) + 1
}

// serve starts those who can.
func (m *model) serve() {
	for len(m.waiting) > 0 && m.canStart() {
		t, how := m.next()
		m.leave(t)
		if t.over(m.now, m.need(t)) {
			m.reject(t, t.late())
			continue
		}
		m.turns++
		if how == "starvation_turn" {
			m.turns = 0
		}
		m.start(t, how)
	}
}

func (m *model) next() (*taskModel, decision.Grant) {
	if m.every > 0 && m.turns+1 == m.every {
		return m.waiting[0], "starvation_turn"
	}
	var first, last *taskModel
	for _, w := range m.waiting {
		if first == nil || w.priority > first.priority {
			first = w
		}
		if last == nil || w.priority >= last.priority {
			last = w
		}
	}
	if m.stands(first.priority) {
		return last, "queue_newest"
	}
	return first, "queue_oldest"
}

// of lists those who wait with a priority, oldest first.
func (m *model) of(p decision.Priority) (all []*taskModel) {
	for _, w := range m.waiting {
		if w.priority == p {
			all = append(all, w)
		}
	}
	return all
}

func (m *model) release(t *taskModel) bool {
	if t.state != runs {
		return false
	}
	t.state = ended
	if t.parked {
		m.parked--
	} else {
		m.running--
	}
	m.serve()
	return true
}

// park takes the slot of a task that runs, unless there are as many without one as the decision allows.
func (m *model) park(t *taskModel) bool {
	if t.state != runs {
		return false
	}
	if !t.parked && m.parked < m.d.Parked {
		t.parked = true
		m.parked++
		m.running--
		m.serve()
	}
	return t.parked
}

func (m *model) cancel(t *taskModel) {
	if t.state != waits {
		return
	}
	m.leave(t)
	m.reject(t, decision.Canceled)
}

func (m *model) apply(d decision.ControlDecision) {
	if d.Seq < m.seq {
		return
	}
	m.seq, m.d, m.decisionState, m.staleAt = d.Seq, d, decision.Applied, never
	if d.ValidFor > 0 {
		m.staleAt = m.now + d.ValidFor + 1
	}
	m.serve()
	for _, t := range slices.Clone(m.waiting) { // who came when nothing bounded the wait
		if m.d.MaxWait > 0 && t.maxWait == 0 && t.due == never && !t.patient && m.now-t.since >= 5*m.bound(0, m.expected()) {
			t.maxWait = 5 * m.bound(0, m.expected())
			m.leave(t)
			m.reject(t, decision.MaxWaitExceeded)
		}
	}
}

func (m *model) close() {
	m.closed = true
	for len(m.waiting) > 0 {
		t := m.waiting[0]
		m.leave(t)
		m.reject(t, decision.Closed)
	}
}

// advance lets time pass: what happens by itself happens in order of time.
func (m *model) advance(d time.Duration) {
	end := m.now + d
	for {
		at, who := m.staleAt, (*taskModel)(nil)
		for _, w := range m.waiting {
			if w.leaveAt < at {
				at, who = w.leaveAt, w
			}
		}
		if at > end {
			m.now = end
			return
		}
		m.now = at
		switch {
		case who == nil:
			m.staleAt, m.decisionState = never, decision.Stale
			if s := m.d.Stale; s != nil {
				s := *s
				s.TargetConcurrency = min(s.TargetConcurrency, m.d.TargetConcurrency)
				m.d = s
			}
		case who.over(m.now, m.need(who)):
			m.leave(who)
			m.reject(who, who.late())
		default:
			who.leaveAt = m.leaveAt(who)
		}
	}
}
