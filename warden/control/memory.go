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
	roomy   = 0.5  // from here on the decision says what is held, before it lowers anything
	fitting = 0.72 // tasks may fill it up to here; the collector needs the rest, or spends its time on collections
	scarce  = 0.86 // from here on the process is in danger, and what is likely counts as certain
	unkept  = 0.75 // of a limit that the collector does not know
	owed    = 0.1  // tasks may have this much, whatever else there is: what holds little must not pay for a cache
)

// What is believed before the first collection, and how fast it goes out of date: standard deviations, as shares of the memory.
const (
	apiece    = 0.2  // what a task holds
	drift     = 0.1  // what is held beside tasks, times the seconds: caches grow steadily
	change    = 0.06 // what all tasks hold, after a second: their mixture varies
	anew      = 0.1  // what all tasks hold, where a measurement is off by more than surprise deviations: they are others
	surprise  = 3.0
	doubt     = 3    // deviations by which an estimate may be wrong
	roughly   = 0.02 // a measurement
	unsteady  = 0.25 // what a task holds, as a share of the average
	reopening = 60.0 // seconds in which the limit grows e-fold while there is room
)

// memory is what is known of memory. What collections find is a sum, base + each x tasks: both are estimated together, by a
// Kalman filter, because neither is ever seen alone. What was allocated within the life of a task bounds what all of them hold.
type memory struct {
	limit        float64 // of running tasks; 0: none
	live, usable float64 // what the last collection found, and what live data may use
	tasks        float64 // that ran at the last collection
	known        bool    // there was one

	base, each              float64 // bytes
	baseVar, eachVar, covar float64 // their variances, and covariance
	age                     float64 // seconds since the last collection

	life   float64 // seconds that no running task is older than
	lately float64 // bytes allocated within that time
	crowd  float64 // tasks that ran in that time, on average
	counts bool    // allocations are counted

	fits, running float64 // tasks that fit, and that run
	near          *decision.Reason
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
	running, tasks := finite(float64(of.Running)), finite(of.Concurrency)
	m.age, m.running, m.usable = m.age+dt, running, limit
	if of.Count > 0 {
		m.life = 8 * seconds(of.P90) // what is older runs for long (M7)
	}
	life := max(1, m.life, seconds(of.LongFor))
	m.lately = m.lately*math.Exp(-dt/life) + float64(s.Allocated)
	m.crowd += (tasks - m.crowd) * toward(dt, life)
	m.counts = m.counts || s.Allocated > 0
	// Before the first collection the heap is small, unless GOGC is off.
	if s.Collections > 0 || !m.known && s.Growth > 0 {
		m.live = float64(s.Live)
		m.learn(running)
		m.warn()
	}
	if !m.known {
		return
	}
	// An estimate that nothing identified lowers nothing.
	sure := m.each
	if m.live < scarce*limit {
		sure -= doubt * math.Sqrt(m.eachVar)
	}
	m.fits = math.Inf(1)
	if room := fitting*limit - m.base - m.each*m.tasks; sure > 0 && room > 0 {
		m.fits = max(m.tasks+room/sure, owed*limit/m.each)
	} else if sure > 0 {
		m.fits = max(m.tasks+room/m.each, owed*limit/m.each)
	}
	allowed := 0.0 // whatever they hold: it was allocated
	if m.counts {
		allowed = m.crowd * owed * limit / max(m.lately, 1)
	}
	m.fits = max(m.fits, allowed)
	fits := max(m.fits, floor)
	held := m.base + m.each*running
	full := held+m.each*running >= fitting*limit // twice as many would not fit, and in a step the limit at most doubles
	shown := s.Collections > 0 && (sure > 0 && held < fitting*limit || sure <= 0 && m.live < scarce*limit)
	switch {
	case full && fits < m.most():
		m.limit = fits
	case m.limit == 0 || !may:
	case fits > m.limit && (shown || !full && sure > 0 || allowed > m.limit):
		step := 1.0 // which may tell more
		if sure > 0 {
			step = max(1, 0.1*m.limit)
		}
		m.limit = min(m.limit+step, fits)
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
func (m *memory) learn(tasks float64) {
	some := max(tasks, 1)
	if !m.known { // anything of it may be the tasks'
		m.known, m.base = true, m.live/2
		m.baseVar, m.eachVar = square(m.live/2), square(apiece*m.usable)
	} else {
		m.baseVar += square(drift * m.usable * m.age)
		m.eachVar += square(change*m.usable/some) * m.age
	}
	m.age, m.tasks = 0, tasks
	off := m.live - m.base - m.each*tasks
	noise := square(roughly*m.usable) + square(unsteady*m.each)*(1+tasks)
	alongBase, alongEach, sum := m.along(noise)
	if math.Abs(off) > surprise*math.Sqrt(sum) {
		m.eachVar += square(anew * m.usable / some)
		alongBase, alongEach, sum = m.along(noise)
	}
	m.base += off * alongBase / sum
	m.each += off * alongEach / sum
	m.baseVar -= alongBase * alongBase / sum
	m.covar -= alongBase * alongEach / sum
	m.eachVar = max(m.eachVar-alongEach*alongEach/sum, 0)
	// Neither is negative, nor more than there is; and the sum is as measured.
	within := min(max(m.each, 0), m.live/some)
	m.base, m.each = m.base+(m.each-within)*tasks, within
	if m.base < 0 {
		m.base, m.each = 0, m.each+m.base/some
	}
	// So neither is less certain than that.
	shrink := func(of *float64, sd float64) {
		if was := math.Sqrt(*of); was > sd {
			*of, m.covar = square(sd), m.covar*sd/was
		}
	}
	shrink(&m.baseVar, m.live/2)
	shrink(&m.eachVar, m.live/2/some)
}

// along returns the covariances of base and each with what a collection finds, and its variance.
func (m *memory) along(noise float64) (base, each, sum float64) {
	base, each = m.baseVar+m.covar*m.tasks, m.covar+m.eachVar*m.tasks
	return base, each, base + each*m.tasks + noise
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
	fit := math.Floor(min(m.fits, m.limit))
	said := fmt.Sprintf("%s a task, %.0f of %.0f fit", bytes(m.each), min(m.running, fit), fit)
	if m.base > m.each {
		said += " beside " + bytes(m.base)
	}
	return decision.NewReason("memory", "memory_bytes_per_task", m.each, decision.Tighten).Because(said)
}

// warn says what is held, before it lowers anything.
func (m *memory) warn() {
	if m.near = nil; m.live <= roomy*m.usable {
		return
	}
	said := fmt.Sprintf("%s of %s are in use", bytes(m.live), bytes(m.usable))
	if beside := m.live - m.lately; m.counts && beside > m.lately {
		said += fmt.Sprintf(", %s or more by something else than tasks", bytes(beside))
	}
	r := decision.NewReason("memory_near", "memory_live_bytes", m.live, decision.Hold).Because(said)
	m.near = &r
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
