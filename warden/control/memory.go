// SPDX-License-Identifier: Apache-2.0

// Memory: what a running task holds, learned from what collections find, and how many tasks fit.

package control

import (
	"fmt"
	"math"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Shares of the memory that live data may use.
const (
	roomy   = 0.5  // up to here what is uncertain limits nobody
	fitting = 0.72 // tasks may fill it up to here; the collector needs the rest, or spends its time on collections
	scarce  = 0.9  // from here on the process is in danger
	unkept  = 0.75 // of a limit that the collector does not know
	owed    = 0.1  // tasks may have this much, whatever else there is: what holds little must not pay for a cache
)

// What is believed before the first collection, and how fast it goes out of date: standard deviations, as shares of the memory.
const (
	apiece    = 0.2  // what a task holds
	drift     = 0.05 // what is held beside tasks, after a second: caches grow
	change    = 0.03 // what a task holds, after a second, as a share of it: the mixture of tasks varies
	roughly   = 0.02 // a measurement
	unsteady  = 0.25 // what a task holds, as a share of the average
	reopening = 60.0 // seconds in which the limit grows e-fold while there is room
)

// memory is what is known of memory. What collections find is a sum, base + each x tasks: both are estimated together, by a
// Kalman filter, because neither is ever seen alone.
type memory struct {
	limit float64 // of running tasks; 0: none
	tasks float64 // that ran at the last collection
	known bool    // there was one

	base, each              float64 // bytes
	baseVar, eachVar, covar float64 // their variances, and covariance
	age                     float64 // seconds since the last collection

	fits, running float64 // tasks that fit, and that run
}

// observe takes note of a sample. The limit is at least floor, and grows only if it may.
func (m *memory) observe(s monitor.Memory, of monitor.Service, floor, dt float64, may bool) {
	limit := usable(s)
	if limit == 0 {
		if may {
			*m = memory{}
		}
		return
	}
	running := finite(float64(of.Running))
	m.age, m.running = m.age+dt, running
	live := float64(s.Live)
	// Before the first collection the heap is small, unless GOGC is off.
	if s.Collections > 0 || !m.known && s.Growth > 0 {
		m.learn(live, finite(of.Concurrency), 1+float64(of.Count), limit)
	}
	if !m.known {
		return
	}
	held := m.base + m.each*running
	full := held+m.each*running >= fitting*limit // twice as many would not fit, and in a step the limit at most doubles
	// What is uncertain is believed as far as there is no room left.
	doubt := math.Sqrt(m.eachVar) * 2 * (1 - ramp(live/limit, roomy, scarce))
	each := max(m.each-doubt, 1)
	m.fits = max(m.tasks+(fitting*limit-m.base-m.each*m.tasks)/each, owed*limit/each)
	fits := max(m.fits, floor)
	switch shown := s.Collections > 0 && held < fitting*limit || m.limit < owed*limit/(m.each+doubt); {
	case full && (m.limit == 0 || fits < m.limit):
		m.limit = fits
	case m.limit == 0 || !may:
	case fits > m.limit && (shown || !full):
		m.limit = min(m.limit+max(1, 0.1*m.limit), fits)
	case !full:
		m.limit *= math.Exp(dt / reopening)
	}
	if m.limit > most {
		m.limit = 0
	}
}

// usable returns how much live data the process may have: the collector keeps a soft limit, but without one lets the heap grow
// in proportion to it. 0: nothing is known, or nothing would start a collection.
//
// Of a limit that nothing keeps, a quarter is left free: a process that passes it once is killed, and between two collections what
// has been started cannot be taken back.
func usable(s monitor.Memory) float64 {
	switch growth := finite(s.Growth); {
	case s.Soft:
		return float64(s.Limit)
	case growth > 0:
		return unkept * float64(s.Limit) / (1 + growth)
	}
	return 0
}

// learn takes note of what a collection found while tasks ran.
func (m *memory) learn(live, tasks, unsure, limit float64) {
	if !m.known { // anything of it may be the tasks'
		m.known, m.base, m.tasks = true, live/2, tasks
		m.baseVar, m.eachVar = square(live/2), square(apiece*limit)
	} else {
		m.baseVar += square(drift*limit) * m.age
		m.eachVar += square(change*m.each) * m.age
	}
	if m.age = 0; math.Abs(tasks-m.tasks) > unsure {
		m.tasks = tasks
	} else { // noise in what explains would hide what it explains
		m.tasks += 0.1 * (tasks - m.tasks)
	}
	tasks = m.tasks
	noise := square(roughly*limit) + square(unsteady*m.each)*(1+tasks)
	alongBase, alongEach := m.baseVar+m.covar*tasks, m.covar+m.eachVar*tasks
	sum := alongBase + alongEach*tasks + noise
	off := live - m.base - m.each*tasks
	m.base += off * alongBase / sum
	m.each += off * alongEach / sum
	if m.each < 0 { // neither can be: the sum is as measured
		m.base, m.each = m.base+m.each*tasks, 0
	}
	if m.base < 0 {
		m.base, m.each = 0, m.each+m.base/max(tasks, 1)
	}
	m.baseVar -= alongBase * alongBase / sum
	m.covar -= alongBase * alongEach / sum
	m.eachVar = max(m.eachVar-alongEach*alongEach/sum, 0)
}

func square(x float64) float64 { return x * x }

// most returns the limit; infinite: memory allows any.
func (m *memory) most() float64 {
	if m.limit == 0 {
		return math.Inf(1)
	}
	return m.limit
}

// reason says what is believed: "20 MB a task, 9 of 9 fit".
func (m *memory) reason() decision.Reason {
	said := fmt.Sprintf("%s a task, %.0f of %.0f fit", bytes(m.each), m.running, math.Floor(min(m.fits, m.limit)))
	if m.base > m.each {
		said += " beside " + bytes(m.base)
	}
	return decision.NewReason("memory", "memory_bytes_per_task", m.each, decision.Tighten).Because(said)
}

// bytes writes an amount for a reader: "20 MB".
func bytes(n float64) string {
	unit := 0
	for ; n >= 999.5 && unit < 4; unit++ {
		n /= 1000
	}
	digits := 0
	if unit > 0 && n < 9.95 {
		digits = 1
	}
	return fmt.Sprintf("%.*f %s", digits, n, [...]string{"B", "kB", "MB", "GB", "TB"}[unit])
}
