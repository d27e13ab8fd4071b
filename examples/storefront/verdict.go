// The verdict: what must be seen in the results for the demonstration to count.
package main

import (
	"fmt"
	"time"
)

// limits are the thresholds of the verdict, as shares of the requests of one route in one phase.
type limits struct {
	lost float64 // checkout is lost if less than this succeeds
	kept float64 // a route is kept if at least this succeeds
	full float64 // analytics is exhausted if at least this is rejected; at least a tenth of it because no slot is free
	// A route's p99 may be twice that of its healthy phase. Where that is a few milliseconds, a single pause of the machine
	// is more than all of it: 1 % of a phase are one to three requests. So it may be this much longer in any case, which is
	// less than half of the shortest wait that a lack of connections costs; and twice as long as what the empty page took at the
	// same time, which waits for the machine alone.
	allowance time.Duration
}

func demoLimits() limits {
	return limits{lost: 0.5, kept: 0.99, full: 0.5, allowance: 100 * time.Millisecond}
}

// A finding is one claim and whether the numbers bear it out.
type finding struct {
	Claim string `json:"claim"`
	Holds bool   `json:"holds"`
}

// findings are made one by one, and then asked.
type findings []finding //nolint:recvcheck // what appends needs the pointer, and what asks has only the value

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

// bystanders are the routes that a slow analytics query has no business with.
func bystanders() []route { return []route{checkout, products, admin} }

// What a compartment says when it has no free slot.
func noPlace() []string { return []string{"queue_overflow", "timeout_queued"} }

// judgeIncident compares the shared pool with the compartments; all findings must hold. That both are well before the slow
// query ships is part of it: otherwise the loss would have another cause. So is that checkout was lost for want of a
// connection and not for some failure of its own.
func judgeIncident(pool, apart result) (f findings) {
	lim := demoLimits()
	f.keep(lim, pool, healthy, bystanders()...)
	lost := pool.in(slow)[checkout]
	failed := lost.sent - lost.succeeded
	f.add(failed > 0 && lost.success() < lim.lost && 2*count(lost.failed, "pool_timeout") > failed,
		"%s, %s: checkout succeeds less than %.2f (%s; without a connection: %d of %d failures)",
		pool.way, slow, lim.lost, share(lost.success()), count(lost.failed, "pool_timeout"), failed)

	f.keep(lim, apart, healthy, bystanders()...)
	f.keep(lim, apart, slow, bystanders()...)
	f.quick(lim, apart, slow, bystanders()...)
	reports := apart.in(slow)[analytics]
	full, open := count(reports.failed, noPlace()...), count(reports.failed, "breaker_open")
	f.add(reports.share(full+open) >= lim.full && 10*full >= full+open && full > 0,
		"%s, %s: at least %.2f of analytics is rejected (%s), a tenth of that because no slot is free (%d of %d, breaker: %d)",
		apart.way, slow, lim.full, share(reports.share(full+open)), full, full+open, open)

	f.keep(lim, apart, crowded, bystanders()...)
	page := apart.in(crowded)[products]
	instead := count(page.cached, noPlace()...)
	f.add(page.share(instead) >= 0.1, "%s, %s: products answers from its cache when no slot is free (%s of its answers)",
		apart.way, crowded, share(page.share(instead)))
	return f
}

// judgeOverload compares the compartments alone with those under a warden when the processor is short.
func judgeOverload(alone, under result) (f findings) {
	lim := demoLimits()
	lost := alone.in(sale)[checkout]
	failed := lost.sent - lost.succeeded
	f.add(failed > 0 && lost.success() < lim.lost && 2*count(lost.failed, late) > failed, "%s, %s: checkout succeeds less than %.2f (%s; late: %d of %d failures)",
		alone.way, sale, lim.lost, share(lost.success()), count(lost.failed, late), failed)
	f.keep(lim, under, healthy, checkout)
	f.keep(lim, under, sale, checkout)
	page := under.in(sale)[products]
	f.add(page.succeeded > 0 && page.succeeded < page.sent, "%s, %s: some of products succeeds, but not all (%s)", under.way, sale, share(page.success()))
	return f
}

// keep finds whether the worst of these routes is kept. A route without requests shows nothing and counts as 0.
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
		f.add(got >= lim.kept, "%s, %s: %s succeeds at least %.2f (%s)", res.way, phase, names, lim.kept, share(got))
		return
	}
	f.add(got >= lim.kept, "%s, %s: %s succeed at least %.2f (lowest: %s %s)", res.way, phase, names, lim.kept, worst, share(got))
}

// quick finds whether p99 stays near what it was in the healthy phase, but for what the machine itself made everybody wait.
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
