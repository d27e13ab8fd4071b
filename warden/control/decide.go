// SPDX-License-Identifier: Apache-2.0

// The decision: the state as a concurrency limit for a limiter, with reasons.

package control

import (
	"math"
	"strings"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// decide turns the state into a decision. fresh is false if this sample had no information about processors.
func (st *state) decide(cfg Config, at time.Time, fresh bool) decision.ControlDecision {
	d := decision.ControlDecision{
		Seq:               st.seq,
		At:                at,
		TargetConcurrency: int(math.Round(st.target(cfg))),
		Parked:            int(max(min(float64(cfg.Max), st.memory.most())-math.Round(st.target(cfg)), 0)),
		ShedProbability:   st.shed,
		Reasons:           st.reasons(fresh),
		ValidFor:          cfg.ValidFor,
		Expected:          time.Duration(st.served.expected() * float64(time.Second)),
		MaxWait:           st.wait.most(st.served.expected()),
		Needs:             st.needs,
		Parts:             st.decideParts(),
		Yields:            2 + int(math.Ceil(14*st.pressure)),
	}
	// Without samples the limit falls by one step, and no further, because silence is not evidence of overload.
	stale := d
	floor := min(st.target(cfg), max(float64(cfg.Min), float64(cfg.Processors)))
	stale.TargetConcurrency = int(math.Round(max(blind*st.target(cfg), floor)))
	stale.Reasons = []decision.Reason{
		decision.NewReason("control_silent", "valid_for_seconds", cfg.ValidFor.Seconds(), decision.Tighten),
	}
	stale.ValidFor = 0
	d.Stale = &stale
	return d
}

// reasons returns the dominant reason of the processors' half, then that of the service half, then the pools that nobody can
// read.
func (st *state) reasons(fresh bool) []decision.Reason {
	reasons := make([]decision.Reason, 0, 2)
	starved := st.theft.starved
	switch {
	case !fresh:
		reasons = append(reasons, decision.NewReason("no_information", or(st.top.name, "none"), st.top.value, decision.Hold))
	case st.top.name == elsewhere:
		reasons = append(reasons, decision.NewReason(elsewhere, "none", 0, decision.Relax))
	case st.pressure > shrinkAbove:
		reasons = append(reasons, decision.NewReason("queueing", st.top.name, st.top.value, decision.Tighten))
	case starved && st.pressure >= growBelow:
		reasons, starved = append(reasons, st.theft.reason(decision.Hold)), false
	case starved:
		reasons, starved = append(reasons, st.theft.reason(decision.Relax)), false
	case st.pressure >= growBelow:
		reasons = append(reasons, decision.NewReason("busy", st.top.name, st.top.value, decision.Hold))
	default:
		reasons = append(reasons, decision.NewReason("calm", st.top.name, st.top.value, decision.Relax))
	}
	if starved { // and what we get is not enough for what we run
		reasons = append(reasons, st.theft.reason(decision.Hold))
	}
	if r, ok := st.served.reason(); ok {
		reasons = append(reasons, r)
	}
	if st.memory.most() < st.all()+st.served.long.parked {
		reasons = append(reasons, st.memory.reason())
	} else if near := st.memory.near; near != nil {
		reasons = append(reasons, *near)
	}
	if unread := st.served.unread; len(unread) > 0 {
		r := decision.NewReason("pool_unreadable", "pools_unreadable", float64(len(unread)), decision.Hold)
		reasons = append(reasons, r.Because(strings.Join(unread, ", ")))
	}
	return reasons
}

// reason returns the dominant one of the service half; false: there is none.
func (v *service) reason() (decision.Reason, bool) {
	switch {
	case !v.fed:
		return decision.NewReason("service_not_fed", "service_count", 0, decision.Hold), true
	case v.pools.full && v.pools.tightest != nil:
		return v.pools.reason(v.rate), true
	case v.long.beyond():
		return v.long.reason(decision.Hold), true
	case v.phase == halved:
		return v.abandonment.reason(), true
	case v.phase != watching:
		return decision.NewReason("service_trial", "service_inflation", v.inflation, decision.Tighten), true
	case v.slow:
		return decision.NewReason("service_slow", "service_inflation", v.inflation, decision.Tighten), true
	case v.long.slots > 0:
		return v.long.reason(decision.Relax), true
	}
	return decision.Reason{}, false
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
