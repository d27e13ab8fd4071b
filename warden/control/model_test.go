// SPDX-License-Identifier: Apache-2.0

// A modelled service: tasks come by chance, wait for the target, then for one of so many slots, and take their time there.

package control_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

type model struct {
	clock
	random   *rand.Rand
	slots    int     // 0: one for everybody
	took     float64 // seconds at a slot
	spread   float64 // of that, either side
	offered  float64 // tasks that would run at once if none waited
	patience float64 // seconds in which a user must be answered; 0: any time
	timeout  float64 // seconds after which a task is abandoned, and keeps its slot to the end; 0: never

	now, coming   float64
	waiting       []float64 // when those came who wait
	runs          []task    // in the order in which they end
	free          []float64 // when the slots are, in order
	answers, late int       // users who were answered in time, and others
}

type task struct {
	began, ends float64
	abandoned   bool
}

func newModel(seed uint64) *model { return &model{random: rand.New(rand.NewPCG(seed, 1))} }

// sample lets a tick pass under this target.
func (m *model) sample(target int) monitor.Sample {
	end := m.now + tick.Seconds()
	var times []float64
	work, abandoned, lost := 0.0, uint64(0), 0.0
	for m.now < end {
		to := end
		if m.offered > 0 {
			if m.coming <= m.now {
				m.coming = m.now + m.random.ExpFloat64()*m.took/m.offered
			}
			to = min(to, m.coming)
		}
		if len(m.runs) > 0 {
			to = min(to, m.runs[0].ends)
		}
		work += float64(len(m.runs)) * (to - m.now)
		m.now = to
		if m.offered > 0 && to == m.coming && len(m.waiting) < 1000 {
			m.waiting = append(m.waiting, to)
		}
		for len(m.runs) > 0 && m.runs[0].ends <= to {
			if m.runs[0].abandoned {
				abandoned++
				lost += to - m.runs[0].began
			} else {
				times = append(times, to-m.runs[0].began)
			}
			m.runs = m.runs[1:]
		}
		for len(m.waiting) > 0 && len(m.runs) < target {
			m.start(m.waiting[0])
			m.waiting = m.waiting[1:]
		}
	}
	slices.Sort(times)
	s := quiet()
	s.Service = monitor.Service{
		Count: uint64(len(times)), Throughput: float64(len(times)) / tick.Seconds(),
		Concurrency: work / tick.Seconds(), Abandoned: abandoned, AbandonedTime: time.Duration(lost * float64(time.Second)),
	}
	few := min(len(times), len(s.Service.Times))
	for i := range few {
		s.Service.Times[i] = time.Duration(times[i*len(times)/few] * float64(time.Second))
	}
	return m.next(s)
}

// start starts a task of a user who came then, if it can end in time.
func (m *model) start(came float64) {
	t := task{began: m.now, ends: m.now + m.took*(1+m.spread*(2*m.random.Float64()-1))}
	if m.patience > 0 && t.ends > came+m.patience {
		m.late++
		return
	}
	if m.slots > 0 {
		if len(m.free) >= m.slots {
			t.ends += max(0, m.free[0]-m.now)
			m.free = m.free[1:]
		}
		i, _ := slices.BinarySearch(m.free, t.ends)
		m.free = slices.Insert(m.free, i, t.ends)
	}
	if m.timeout > 0 && t.ends > m.now+m.timeout {
		t.ends, t.abandoned = m.now+m.timeout, true
		m.late++
	} else {
		m.answers++
	}
	i, _ := slices.BinarySearchFunc(m.runs, t, func(a, b task) int { return cmp.Compare(a.ends, b.ends) })
	m.runs = slices.Insert(m.runs, i, t)
}

// drive steps c for so many seconds, and returns the targets at each tick.
func (m *model) drive(
	c *control.Controller, seconds float64, last decision.ControlDecision,
) (targets []int, d decision.ControlDecision) {
	for range int(seconds * 10) {
		last = c.Step(m.sample(last.TargetConcurrency))
		targets = append(targets, last.TargetConcurrency)
	}
	return targets, last
}
