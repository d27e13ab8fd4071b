// -matrix: each compartment is overloaded alone, and then all of them together; the others are judged.
package main

import "time"

// overloaded is the phase in which one compartment, or each, is asked for more than it may have.
const overloaded = "overloaded"

const (
	matrixHold = 400 * time.Millisecond // of a query in an overloaded compartment
	matrixOver = 1.6                    // times what Max places can do
)

// every stands for all routes together.
const every = routes

// overloadOf is a scenario in which queries of one route, or of every, hold their connections for long and are asked for more
// often than all the places that it may have can answer.
func overloadOf(target route, base scenario) scenario {
	first := base.phases[0]
	calm := phase{healthy, 2 * time.Second, first.perSecond, first.hold}
	calm.perSecond[analytics] = 40
	flood := calm
	flood.name, flood.lasts = overloaded, 3*time.Second
	for r, c := range base.compartments(nil) {
		if target == every || target == route(r) {
			flood.hold[r] = matrixHold
			flood.perSecond[r] = matrixOver * float64(c.Max) / matrixHold.Seconds()
		}
	}
	base.scale, base.phases = 1, []phase{calm, flood}
	return base
}

func overloadTitle(target route) string {
	if target == every {
		return "all overloaded"
	}
	return target.String() + " overloaded"
}

// judgeMatrix judges the results of matrix, in its order. Where all are overloaded nobody is a bystander: then each must
// still get done what its guarantee is enough for, less a fifth for the beginning of the phase and its noise.
func judgeMatrix(all []result, base scenario) (f findings) {
	lim := demoLimits()
	for i, res := range all {
		target := route(i)
		var others []route
		for r := range routes {
			got := res.in(overloaded)[r]
			if target != every && target != r {
				others = append(others, r)
				continue
			}
			unserved := count(got.failed) + count(got.cached)
			f.add(got.share(unserved) >= 0.2, "%s: %s is asked for too much (%s is rejected or answered by its fallback)", res.way, r, share(got.share(unserved)))
			if target == every {
				own := float64(base.conns[r]) * overloadOf(every, base).phases[1].lasts.Seconds() / matrixHold.Seconds()
				done := got.succeeded - count(got.cached)
				f.add(float64(done) >= 0.8*own, "%s: %s has %d done, its guarantee is enough for %.0f", res.way, r, done, own)
			}
		}
		if len(others) > 0 {
			f.keep(lim, res, healthy, others...)
			f.keep(lim, res, overloaded, others...)
			f.quick(lim, res, overloaded, others...)
		}
	}
	if len(all) != int(every)+1 {
		f.add(false, "%d overloads were run, want %d", len(all), int(every)+1)
	}
	return f
}
