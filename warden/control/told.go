// Pools that tell their own use: where work waits for one, the limit follows what the pool says. No trial is needed.

package control

import (
	"fmt"
	"math"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

const (
	spare     = 0.05 // share of a pool's need by which the limit exceeds it, so that a connection given back finds somebody
	toldFor   = 2.0  // time constant in seconds of what a task needs of a pool, at least
	toldTasks = 4.0  // and in execution times
	certain   = 8.0  // running tasks, added up over samples, from which on it bounds growth
)

// told is what the pools of a service are known to be.
type told struct {
	pools map[string]*pool
	limit float64 // the least need of a pool that is known; infinite without one
	full  bool    // a pool is full: nothing is guessed
	waits bool    // and more wait for it than should
	at    *pool   // the pool behind limit
}

// pool is one of them.
type pool struct {
	use, tasks float64 // connections that were needed, and tasks that ran, added up with older samples fading
	seen       float64 // of tasks, those while it was seen how many are needed
	last       monitor.PoolReading
	waiting    float64 // at the last sample, told or estimated
}

// each is how many connections a running task needs on average; unknown without a task.
func (p *pool) each() float64 { return p.use / p.tasks }

// observe takes note of what the pools tell while running tasks run, long of them for long, that take typical seconds each. It
// allocates only for a pool that is new.
//
// A task needs each connections: of a pool with Max of them, Max/each tasks make use. That is learned wherever the need is known:
// what is in use while nobody has to wait, and what is in use and waits together where the pool counts who waits. Work beside the
// limiter is in these figures, so it lowers what is left for this one, in proportion.
func (t *told) observe(pools []monitor.PoolReading, running, long, typical, dt float64) {
	t.limit, t.full, t.waits, t.at = math.Inf(1), false, false, nil
	if len(pools) == 0 {
		return
	}
	if t.pools == nil {
		t.pools = map[string]*pool{}
	}
	for i := range pools {
		r := &pools[i]
		if r.Problem != "" {
			continue
		}
		p := t.pools[r.Name]
		if p == nil {
			if len(t.pools) == mostPools {
				continue
			}
			p = new(pool)
			t.pools[r.Name] = p
		}
		p.last = *r
		fade := math.Exp(-dt / max(toldFor, toldTasks*typical))
		p.use, p.tasks, p.seen = p.use*fade, p.tasks*fade, p.seen*fade
		full, waits, limit := p.bound(running)
		if full && long >= float64(r.Max) && r.Max > 0 {
			continue // what holds it may never end, and then no limit helps those who wait for it
		}
		t.full, t.waits = t.full || full, t.waits || waits
		if limit < t.limit {
			t.limit, t.at = limit, p
		}
	}
}

// mostPools bounds memory where names have no end.
const mostPools = 64

// bound judges the last reading: whether the pool is full, whether more wait than should, and for which limit it has enough.
func (p *pool) bound(running float64) (full, waits bool, limit float64) {
	r := &p.last
	inUse, most := finite(float64(r.InUse)), finite(float64(r.Max))
	exact := r.Waiting.OK
	p.waiting = 0
	if exact {
		p.waiting = finite(r.Waiting.Value)
	}
	if most == 0 { // it knows only who waits
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
	default: // for long nobody has seen the pool with room: a connection for each task is the least that can be needed
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
func (t *told) reason(rate float64) decision.Reason {
	d := decision.Hold
	if t.waits {
		d = decision.Tighten
	}
	return decision.NewReason("pool_full", "pool_waiting", t.at.waiting, d).Because(t.sentence(rate))
}

// sentence says what the tightest pool told: "orders-db: 10 of 10 in use, 7 wait 40ms".
func (t *told) sentence(throughput float64) string {
	p := t.at
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
		s += fmt.Sprintf(" %v", roughly(p.waiting/(throughput*each)))
	}
	return s
}

// unreadable names the pools whose reading must not be used, and says why: "cache: blocked".
func unreadable(pools []monitor.PoolReading) (all []string) {
	for i := range pools {
		if p := &pools[i]; p.Problem != "" {
			all = append(all, p.Name+": "+p.Problem)
		}
	}
	return all
}

// roughly rounds seconds to two digits, for a reader.
func roughly(s float64) time.Duration {
	d := time.Duration(min(s, 3600) * float64(time.Second))
	unit := time.Duration(1)
	for d >= 100*unit {
		unit *= 10
	}
	return d.Round(unit)
}

// obey follows the pools while one is full, in place of the law for what nobody tells.
func (v *service) obey(n, ended float64) {
	w, t := &v.window, &v.told
	if v.phase != watching { // a trial's question has an answer now
		v.enter(watching)
	}
	v.slow, v.longer, v.limited = t.waits, 0, 0
	if t.waits {
		v.target = max(min(v.target, v.room()), 1)
		v.inflation = 1 + t.at.waiting/max(n, 1)
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

// grow raises the limit by as much as has ended, but not beyond what the pools have enough for.
func (v *service) grow(by float64) {
	v.target = max(v.target, min(v.target+min(by, v.target), v.room()))
}

// room is how much that ends the pools have enough for: they do not know what runs for long.
func (v *service) room() float64 { return v.told.limit - v.long.slots }
