// SPDX-License-Identifier: Apache-2.0

// The load of the process in the terms of load balancers (ORCA): how full it is, and what it serves and rejects a second.

package warden

import (
	"math"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Load is how loaded a process is, as balancers that weight their servers understand it: they weight a server by Served /
// (Utilization + Failed / Served). It covers the last one to two seconds, less after New, and more where samples are further
// apart. The zero Load is that of an idle process, or says that nothing is known; balancers ignore it.
type Load struct {
	// Utilization is how much is in use of what bounds the process most, 0 to 1: of the processors, unless Config.Remote; of a
	// pool that all work may use (Config.Pools); or of the concurrency limit, if it is enforced and was reached lately: as time
	// passes since then, it counts less, e times in 30 s. Processor time that other processes took is in use. More tasks than the
	// limit allows are 1.
	Utilization float64
	// Served is how many tasks ended per second, those of compartments included and those of [Permit.Abandon] not, 0 or more.
	Served float64
	// Failed is how many tasks per second the limiter rejected, but for want of their own time, or failed ([Permit.Failed]), 0 or
	// more. Without those that failed, a process that fails at once would look like one with room. What a deadline or a client ended
	// may be the client's choice, and is in neither number. Rejections by compartments say nothing about other work and are not in it.
	Failed float64
}

// Load returns the load as of the last sample; the zero Load before the first, if the last one is older than its decision may be
// valid by default (four intervals, at least 1 s), and for a nil or zero Warden. It never blocks, allocates nothing, and costs an
// atomic load and a clock reading.
func (w *Warden) Load() Load {
	if !w.made() {
		return Load{}
	}
	l := w.load.Load()
	if l == nil || time.Since(w.epoch)-l.at > max(time.Second, 4*w.interval) {
		return Load{}
	}
	return l.Load
}

const (
	loadWindow = time.Second // that a Load covers at least
	// limitMemory is the time in which a limit that does not bind counts e times less. If it counted no longer than it binds, a
	// server that just rejected would look empty as soon as it got less, and all balancers would return to it at once; if it
	// counted for ever, equal servers would differ by what some burst had once let their limits grow to.
	limitMemory = 30 * time.Second
)

// timedLoad is a Load and its age from the warden's epoch. It is never modified.
type timedLoad struct {
	Load
	at time.Duration
}

// loadMark is what has been counted until an instant. A Load is the difference of two.
type loadMark struct {
	at             time.Duration
	busy           float64 // seconds of full use
	served, failed float64 // tasks
}

// loadMeter adds up samples. Warden.mu guards it.
type loadMeter struct {
	now, recent, base loadMark      // recent is up to a loadWindow old, and base a loadWindow older
	last              limiter.Tally // at the last sample
	tight             uint64        // of it, rejections that say that the limit binds
	limited           float64       // how much the limit counts, 0 to 1: 1 when it bound, and less from then on
}

// add counts a sample taken at this age, and the limiter's counters after it.
func (m *loadMeter) add(at time.Duration, s *monitor.Sample, l *limiter.Stats) *timedLoad {
	if m.now.at-m.recent.at >= loadWindow {
		m.base, m.recent = m.recent, m.now
	}
	// A deadline that has passed, or the end of the service, says nothing about the limit.
	tight := l.Rejected - l.RejectedFor(decision.DeadlineExceeded) - l.RejectedFor(decision.Closed)
	gap := at - m.now.at
	m.limited *= math.Exp(-gap.Seconds() / limitMemory.Seconds())
	switch {
	case l.Mode != decision.Enforce:
		m.limited = 0
	case l.Running >= l.Target, l.Queued > 0, tight > m.tight:
		m.limited = 1
	}
	m.now.busy += gap.Seconds() * utilization(s, l, m.limited)
	// A bulkhead.Set executes beside the limiter and tells the recorder, which does not count what was discarded.
	abandoned := float64(s.Service.Abandoned)
	m.now.served += max(float64(l.Executed-m.last.Executed), float64(s.Service.Count)+abandoned) - abandoned
	m.now.failed += float64(l.Failed-m.last.Failed) + float64(l.Rejected-m.last.Rejected) -
		float64(l.RejectedFor(decision.DeadlineExceeded)-m.last.RejectedFor(decision.DeadlineExceeded))
	m.now.at, m.last, m.tight = at, l.Tally, tight
	return &timedLoad{m.load(), at}
}

// utilization is the largest of all that may bound the process, 0 to 1.
func utilization(s *monitor.Sample, l *limiter.Stats, limited float64) float64 {
	u := s.Utilization.Value // 0 if unknown
	if s.Remote {
		u = 0 // the work is not at these processors
	}
	if s.Share.OK && s.Share.Value > 0 {
		u /= s.Share.Value // it needed that much
	}
	for i := range s.Pools {
		if p := &s.Pools[i]; p.Part == "" && p.Problem == "" && p.Max > 0 {
			u = max(u, float64(p.InUse)/float64(p.Max))
		}
	}
	u = max(u, limited*float64(l.Running)/float64(max(1, l.Target)))
	if !(u > 0) { // or NaN
		return 0
	}
	return min(u, 1)
}

func (m *loadMeter) load() Load {
	over := (m.now.at - m.base.at).Seconds()
	if over <= 0 {
		return Load{}
	}
	return Load{
		min(1, (m.now.busy-m.base.busy)/over), (m.now.served - m.base.served) / over, (m.now.failed - m.base.failed) / over,
	}
}
