// -matrix: overload each compartment alone, then all together, and check the others.
package main

import "time"

// overloaded is the phase with more load than one compartment, or each, can take.
const overloaded = "overloaded"

const (
	matrixHold = 400 * time.Millisecond // query duration in an overloaded compartment
	matrixLoad = 1.6                    // load relative to the capacity of Max slots
)

// allRoutes is the target of an overload of all routes together.
const allRoutes = routes

// overloadOf is a scenario in which queries of the target hold their connections longer and arrive faster than Max slots can
// serve.
func overloadOf(target route, base scenario) scenario {
	first := base.phases[0]
	calm := phase{healthy, 2 * time.Second, first.perSecond, first.hold}
	calm.perSecond[analytics] = 40
	flood := calm
	flood.name, flood.lasts = overloaded, 3*time.Second
	for r, c := range base.compartments(nil) {
		if target == allRoutes || target == route(r) {
			flood.hold[r] = matrixHold
			flood.perSecond[r] = matrixLoad * float64(c.Max) / matrixHold.Seconds()
		}
	}
	base.scale, base.phases = 1, []phase{calm, flood}
	return base
}

func overloadTitle(target route) string {
	if target == allRoutes {
		return "all overloaded"
	}
	return target.String() + " overloaded"
}

// judgeMatrix judges the results of matrix, in its order. When all are overloaded, each must complete 0.8 of what its
// guarantee allows; the rest is for the start of the phase and noise.
func judgeMatrix(all []result, base scenario) (f findings) {
	lim := demoLimits()
	for i, res := range all {
		target := route(i)
		var others []route
		for r := range routes {
			got := res.in(overloaded)[r]
			if target != allRoutes && target != r {
				others = append(others, r)
				continue
			}
			unserved := count(got.failed) + count(got.cached)
			f.add(got.share(unserved) >= 0.2, "%s: %s is overloaded (%s is rejected or served by its fallback)", res.way, r, share(got.share(unserved)))
			if target == allRoutes {
				own := float64(base.conns[r]) * overloadOf(allRoutes, base).phases[1].lasts.Seconds() / matrixHold.Seconds()
				done := got.succeeded - count(got.cached)
				f.add(float64(done) >= 0.8*own, "%s: %s completes 0.8 of what its guarantee allows (%d of %.0f)", res.way, r, done, own)
			}
		}
		if len(others) > 0 {
			f.keep(lim, res, healthy, others...)
			f.keep(lim, res, overloaded, others...)
			f.quick(lim, res, overloaded, others...)
		}
	}
	if len(all) != int(allRoutes)+1 {
		f.add(false, "%d overloads ran, want %d", len(all), int(allRoutes)+1)
	}
	return f
}
