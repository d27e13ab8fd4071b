// The verdict: claims about the results that must hold for the demonstration to count.
package main

import (
	"fmt"
	"time"
)

// limits are the thresholds of the verdict, as shares of the requests of one route in one phase.
type limits struct {
	lost float64 // checkout is down if less than this succeeds
	kept float64 // a route is unaffected if at least this succeeds
	full float64 // analytics is overloaded if at least this is rejected, a tenth of it because its compartment is full
	// A route's p99 may be twice that of its healthy phase, or twice that of the empty page, which measures the machine alone.
	// It may also grow by this allowance: 1 % of a phase is one to three requests, so a single pause of the machine more
	// than doubles a p99 of a few milliseconds. A missing connection costs at least twice the allowance.
	allowance time.Duration
}

func demoLimits() limits {
	return limits{lost: 0.5, kept: 0.99, full: 0.5, allowance: 100 * time.Millisecond}
}

// A finding is a claim, and whether it holds.
type finding struct {
	Claim string `json:"claim"`
	Holds bool   `json:"holds"`
}

// findings are all claims of a verdict.
type findings []finding //nolint:recvcheck // appending needs a pointer, reading does not

func (f *findings) add(holds bool, format string, args ...any) {
	*f = append(*f, finding{fmt.Sprintf(format, args...), holds})
}

func (f findings) hold() bool {
	for _, one := range f {
		if !one.Holds {
			return false
		}
	}
	return len(f) > 0
}

// bystanders are the routes that a slow analytics query must not affect.
func bystanders() []route { return []route{checkout, products, admin} }

// noSlot lists the rejection reasons of a full compartment.
func noSlot() []string { return []string{"queue_overflow", "timeout_queued"} }

// judgeIncident compares the shared pool with the compartments. It also checks the cause of the outage: all routes work
// before the slow query is deployed, and most failures of checkout are pool timeouts.
func judgeIncident(pool, apart result) (f findings) {
	lim := demoLimits()
	f.keep(lim, pool, healthy, bystanders()...)
	lost := pool.in(slow)[checkout]
	failed := lost.sent - lost.succeeded
	f.add(failed > 0 && lost.success() < lim.lost && 2*count(lost.failed, "pool_timeout") > failed,
		"%s, %s: less than %.2f of checkout succeeds (%s; pool timeouts: %d of %d failures)",
		pool.way, slow, lim.lost, share(lost.success()), count(lost.failed, "pool_timeout"), failed)

	f.keep(lim, apart, healthy, bystanders()...)
	f.keep(lim, apart, slow, bystanders()...)
	f.quick(lim, apart, slow, bystanders()...)
	reports := apart.in(slow)[analytics]
	full, open := count(reports.failed, noSlot()...), count(reports.failed, "breaker_open")
	f.add(reports.share(full+open) >= lim.full && 10*full >= full+open && full > 0,
		"%s, %s: at least %.2f of analytics is rejected (%s), a tenth of that because no slot is free (%d of %d, breaker: %d)",
		apart.way, slow, lim.full, share(reports.share(full+open)), full, full+open, open)

	f.keep(lim, apart, crowded, bystanders()...)
	page := apart.in(crowded)[products]
	instead := count(page.cached, noSlot()...)
	f.add(page.share(instead) >= 0.1, "%s, %s: products answers from its cache when no slot is free (%s of its answers)",
		apart.way, crowded, share(page.share(instead)))
	return f
}

// judgeOverload compares compartments without and with a warden when the CPU is overloaded.
func judgeOverload(alone, under result) (f findings) {
	lim := demoLimits()
	lost := alone.in(sale)[checkout]
	failed := lost.sent - lost.succeeded
	f.add(failed > 0 && lost.success() < lim.lost && 2*count(lost.failed, late) > failed,
		"%s, %s: less than %.2f of checkout succeeds (%s; late: %d of %d failures)",
		alone.way, sale, lim.lost, share(lost.success()), count(lost.failed, late), failed)
	f.keep(lim, under, healthy, checkout)
	f.keep(lim, under, sale, checkout)
	page := under.in(sale)[products]
	f.add(page.succeeded > 0 && page.succeeded < page.sent, "%s, %s: some of products succeeds, but not all (%s)", under.way, sale, share(page.success()))
	return f
}

// keep claims that the worst of these routes is unaffected. A route without requests counts as failed.
func (f *findings) keep(lim limits, res result, phase string, these ...route) {
	worst, got, names := these[0], 2.0, ""
	for i, r := range these {
		if s := res.in(phase)[r].success(); s < got {
			worst, got = r, s
		}
		if i > 0 {
			names += ", "
		}
		names += r.String()
	}
	if len(these) == 1 {
		f.add(got >= lim.kept, "%s, %s: %s succeeds for at least %.2f of requests (%s)", res.way, phase, names, lim.kept, share(got))
		return
	}
	f.add(got >= lim.kept, "%s, %s: %s succeed for at least %.2f of requests (lowest: %s %s)", res.way, phase, names, lim.kept, worst, share(got))
}

// quick claims that p99 stays near that of the healthy phase, apart from delays of the machine itself.
func (f *findings) quick(lim limits, res result, phase string, these ...route) {
	worst, over := these[0], time.Duration(-1<<62)
	bound := func(r route) time.Duration {
		before := res.in(healthy)[r].p99
		return max(2*before, before+lim.allowance, 2*res.in(phase)[ping].p99)
	}
	sent := true
	for _, r := range these {
		if more := res.in(phase)[r].p99 - bound(r); more > over {
			worst, over = r, more
		}
		sent = sent && res.in(phase)[r].sent > 0 && res.in(healthy)[r].sent > 0
	}
	f.add(sent && over <= 0, "%s, %s: p99 at most twice that of phase healthy, or %v more, or twice that of the empty page (nearest: %s %s ms; healthy %s, empty %s)",
		res.way, phase, lim.allowance, worst, millis(res.in(phase)[worst].p99), millis(res.in(healthy)[worst].p99), millis(res.in(phase)[ping].p99))
}
