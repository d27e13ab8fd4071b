// SPDX-License-Identifier: Apache-2.0

// Pools that report their own use: where work waits for one, the limit follows its readings. No trial is needed.

package control

import (
	"fmt"
	"math"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

const (
	spare       = 0.05 // share of a pool's need by which the limit exceeds it, so that a connection given back finds somebody
	fadeSeconds = 2.0  // time constant in seconds of what a task needs of a pool, at least
	fadeTasks   = 4.0  // and in execution times
	certain     = 8.0  // sum of running tasks over samples from which on it bounds growth
)

// pools is the state of the pools of a service.
type pools struct {
	byName   map[string]*pool
	limit    float64 // the least limit of any pool; infinite without one
	full     bool    // a pool is full: execution times are not interpreted
	crowded  bool    // and too many wait for it
	tightest *pool   // the pool with the least limit
}

// pool is one of them.
type pool struct {
	use, tasks float64 // connections that were needed, and running tasks: sums over samples, of which older ones fade
	seen       float64 // of tasks, those of samples in which the need was known
	last       monitor.PoolReading
	waiting    float64 // at the last sample, reported or estimated
}

// each is the average number of connections of a running task; NaN without a task.
func (p *pool) each() float64 { return p.use / p.tasks }

// observe records the readings of the pools while running tasks run, long of them for long, that take typical seconds each. It
// allocates only for a new pool.
//
// If a task needs each connections, a pool of Max connections suffices for Max/each tasks. The need is known while nobody waits:
// the connections in use; and, if the pool counts waiting tasks, always: those in use and waiting. Work beside the limiter is in
// these figures, so it lowers the limit in proportion.
func (t *pools) observe(pools []monitor.PoolReading, running, long, typical, dt float64) {
	t.limit, t.full, t.crowded, t.tightest = math.Inf(1), false, false, nil
	if len(pools) == 0 {
		return
	}
	if t.byName == nil {
		t.byName = map[string]*pool{}
	}
	for i := range pools {
		r := &pools[i]
		if r.Problem != "" {
			continue
		}
		p := t.byName[r.Name]
		if p == nil {
			if len(t.byName) == mostPools {
				continue
			}
			p = new(pool)
			t.byName[r.Name] = p
		}
		p.last = *r
		fade := math.Exp(-dt / max(fadeSeconds, fadeTasks*typical))
		p.use, p.tasks, p.seen = p.use*fade, p.tasks*fade, p.seen*fade
		full, waits, limit := p.judge(running)
		if full && long >= float64(r.Max) && r.Max > 0 {
			continue // what holds it may never end, and then no limit helps those who wait for it
		}
		t.full, t.crowded = t.full || full, t.crowded || waits
		if limit < t.limit {
			t.limit, t.tightest = limit, p
		}
	}
}

// mostPools bounds memory if names vary without end.
const mostPools = 64

// judge evaluates the last reading: whether the pool is full, whether too many wait, and the limit for which it suffices.
func (p *pool) judge(running float64) (full, waits bool, limit float64) {
	r := &p.last
	inUse, most := finite(float64(r.InUse)), finite(float64(r.Max))
	exact := r.Waiting.OK
	p.waiting = 0
	if exact {
		p.waiting = finite(r.Waiting.Value)
	}
	if most == 0 { // it counts only waiting tasks
		room := max(1, spare*(running-p.waiting))
		if running == 0 || p.waiting <= room/2 {
			return false, false, math.Inf(1)
		}
		return true, p.waiting > room, max(1, running-p.waiting+room)
	}
	full = inUse >= most && running > 0
	p.tasks += running
	switch {
	case exact || !full:
		p.use += inUse + p.waiting
		p.seen += running
	case p.use > 0 && p.seen >= 0.1*p.tasks:
		p.use += max(most, p.each()*running)
	default: // the pool was always full: each task needs one connection at least
		p.use += max(most, running)
	}
	each := 1.0
	if p.use > 0 && p.tasks > 0 {
		each = p.each()
	}
	if !full && (p.use == 0 || p.tasks < certain) {
		return full, false, math.Inf(1)
	}
	need := most / each
	room := max(1, spare*need, math.Sqrt(most*max(1-each, 0))/each)
	if full && !exact {
		p.waiting = max(0, (running-need)*each)
	}
	return full, full && running > need+room && p.waiting > 0, need + room
}

// reason names the tightest pool, while rate tasks end per second.
func (t *pools) reason(rate float64) decision.Reason {
	d := decision.Hold
	if t.crowded {
		d = decision.Tighten
	}
	return decision.NewReason("pool_full", "pool_waiting", t.tightest.waiting, d).Because(t.sentence(rate))
}

// sentence describes the tightest pool: "orders-db: 10 of 10 in use, 7 wait 40ms".
func (t *pools) sentence(throughput float64) string {
	p := t.tightest
	s := p.last.Name + ": "
	if p.last.Max > 0 {
		s += fmt.Sprintf("%d of %d in use, ", p.last.InUse, p.last.Max)
	}
	s += fmt.Sprintf("%.0f wait", p.waiting)
	if throughput > 0 && p.waiting > 0 {
		each := 1.0
		if p.last.Max > 0 && p.tasks > 0 {
			each = max(p.each(), 1)
		}
		s += fmt.Sprintf(" %v", roundSeconds(p.waiting/(throughput*each)))
	}
	return s
}

// unreadable names the pools whose reading must not be used, with the problem: "cache: blocked".
func unreadable(pools []monitor.PoolReading) (all []string) {
	for i := range pools {
		if p := &pools[i]; p.Problem != "" {
			all = append(all, p.Name+": "+p.Problem)
		}
	}
	return all
}

// roundSeconds rounds seconds to two digits, for a reader.
func roundSeconds(s float64) time.Duration {
	d := time.Duration(min(s, 3600) * float64(time.Second))
	unit := time.Duration(1)
	for d >= 100*unit {
		unit *= 10
	}
	return d.Round(unit)
}

// followPools follows the pools while one is full, instead of execution times.
func (v *service) followPools(n, ended float64) {
	w, t := &v.window, &v.pools
	if v.phase != watching { // the pool's reading answers what the trial was for
		v.enter(watching)
	}
	v.slow, v.longer, v.limited = t.crowded, 0, 0
	if t.crowded {
		v.target = max(min(v.target, v.poolLimit()), 1)
		v.inflation = 1 + t.tightest.waiting/max(n, 1)
		w.reset()
		return
	}
	if r := w.mean(); len(w.times) >= few && w.time >= r {
		v.base.learn(w.times)
		w.reset()
	}
	if n >= 0.8*v.target {
		v.grow(ended)
	}
}

// grow raises the limit by the number of executions that ended, but not beyond the limit of the pools.
func (v *service) grow(by float64) {
	v.target = max(v.target, min(v.target+min(by, v.target), v.poolLimit()))
}

// poolLimit is the limit of the pools for what ends: they do not know what runs for long.
func (v *service) poolLimit() float64 { return v.pools.limit - v.long.slots }
