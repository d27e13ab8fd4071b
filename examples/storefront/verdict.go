// The verdict: what must be seen in the two results for the demonstration to count.
package main

import "fmt"

// limits are the thresholds of the verdict, as shares of the requests of one route in one phase.
type limits struct {
	lost      float64 // checkout is lost if less than this succeeds
	kept      float64 // a route is kept if at least this succeeds
	exhausted float64 // analytics is exhausted if its gate rejects at least this
}

var demoLimits = limits{lost: 0.5, kept: 0.99, exhausted: 0.5}

// A finding is one claim and whether the numbers bear it out.
type finding struct {
	Claim string `json:"claim"`
	Holds bool   `json:"holds"`
}

// protected are the routes that a slow analytics query has no business with.
var protected = [...]route{checkout, products, admin}

// judge compares the shared pool with the isolated way; all findings must hold. That both ways are well before the
// slow query ships is part of it: otherwise the loss would have another cause. So is that checkout was lost for want
// of a connection and not for some failure of its own.
func judge(shared, isolated result, lim limits) (findings []finding, holds bool) {
	holds = true
	find := func(ok bool, format string, args ...any) {
		findings = append(findings, finding{fmt.Sprintf(format, args...), ok})
		holds = holds && ok
	}
	keeps := func(name string, res result, p phase) {
		r, got := res.worst(p)
		find(got >= lim.kept, "%s, %s: checkout, products, admin succeed at least %.2f (lowest: %s %s)",
			name, p, lim.kept, r, share(got))
	}
	keeps("shared pool", shared, healthy)
	keeps("isolated", isolated, healthy)

	lost := shared.figures[slow][checkout]
	failed := lost.requests() - lost.count[succeeded]
	find(failed > 0 && lost.share(succeeded) < lim.lost && 2*lost.count[poolTimeout] > failed,
		"shared pool, slow: checkout succeeds less than %.2f (%s; no connection: %d of %d failures)",
		lim.lost, share(lost.share(succeeded)), lost.count[poolTimeout], failed)

	keeps("isolated", isolated, slow)
	got := isolated.figures[slow][analytics].share(gateRejected)
	find(got >= lim.exhausted, "isolated, slow: the gate refuses at least %.2f of analytics (%s)", lim.exhausted, share(got))
	return findings, holds
}

// worst is the protected route that succeeded least in a phase, and how much. A route without requests shows nothing
// and counts as 0.
func (res result) worst(p phase) (route, float64) {
	worst := protected[0]
	for _, r := range protected {
		if res.figures[p][r].share(succeeded) < res.figures[p][worst].share(succeeded) {
			worst = r
		}
	}
	return worst, res.figures[p][worst].share(succeeded)
}
