package main

// The verdict can fail in every way that it should.

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func blank(way string, phases ...string) result {
	return result{way: way, phases: phases, figures: make([][routes + 1]figures, len(phases))}
}

// at is the figures of a route in a phase, to be changed.
func (res result) at(phase string, r route) *figures {
	return &res.figures[slices.Index(res.phases, phase)][r]
}

func of(sent, succeeded int, failed, cached map[string]int) figures {
	return figures{sent: sent, succeeded: succeeded, failed: failed, cached: cached, p99: 10 * time.Millisecond}
}

// good returns results for which the verdict of the incident holds, each finding exactly at its limit.
func good() (pool, apart result) {
	pool, apart = blank(shared, healthy, slow, crowded, rollback), blank(divided, healthy, slow, crowded, rollback)
	for _, res := range []result{pool, apart} {
		for p := range res.figures {
			for r := range res.figures[p] {
				res.figures[p][r] = of(1000, 1000, nil, nil)
			}
		}
		for _, r := range bystanders() {
			for _, phase := range []string{healthy, slow, crowded} {
				*res.at(phase, r) = of(1000, 990, map[string]int{late: 10}, nil)
			}
		}
	}
	*pool.at(slow, checkout) = of(1000, 499, map[string]int{"pool_timeout": 251, late: 250}, nil)
	*apart.at(slow, analytics) = of(1000, 500, map[string]int{"queue_overflow": 25, "timeout_queued": 25, "breaker_open": 450}, nil)
	apart.at(crowded, products).cached = map[string]int{"timeout_queued": 99, "queue_overflow": 1, "error": 5}
	apart.at(crowded, products).p99 = time.Minute // its own trouble
	apart.at(slow, checkout).p99 = 110 * time.Millisecond
	apart.at(healthy, admin).p99, apart.at(slow, admin).p99 = 150*time.Millisecond, 300*time.Millisecond
	apart.at(slow, ping).p99, apart.at(slow, products).p99 = 90*time.Millisecond, 180*time.Millisecond
	return pool, apart
}

func TestVerdictHoldsAtItsLimits(t *testing.T) {
	f := judgeIncident(good())
	if !f.hold() || len(f) != 8 {
		t.Errorf("%d findings: %+v", len(f), f)
	}
}

// fails wants exactly the findings to fail that begin so.
func fails(t *testing.T, f findings, begins ...string) {
	t.Helper()
	for _, one := range f {
		should := !slices.ContainsFunc(begins, func(b string) bool { return strings.HasPrefix(one.Claim, b) })
		if one.Holds != should {
			t.Errorf("%q holds: %v, want %v", one.Claim, one.Holds, should)
		}
	}
	if f.hold() {
		t.Error("holds")
	}
}

func TestVerdictFails(t *testing.T) {
	oneLess := func(f *figures, reason string) {
		f.succeeded--
		f.failed = counted(f.failed, reason)
	}
	cases := map[string]struct {
		spoil func(pool, apart result)
		fails string // what the failing finding begins with
	}{
		"shared is lost without the slow query":  {func(p, _ result) { oneLess(p.at(healthy, checkout), "pool_timeout") }, "shared, healthy"},
		"shared has no healthy admin traffic":    {func(p, _ result) { *p.at(healthy, admin) = figures{} }, "shared, healthy"},
		"apart is lost without the slow query":   {func(_, a result) { oneLess(a.at(healthy, products), otherwise) }, "compartments, healthy"},
		"shared keeps half of checkout":          {func(p, _ result) { p.at(slow, checkout).succeeded = 500; p.at(slow, checkout).failed[late]-- }, "shared, slow"},
		"shared loses checkout to its own fault": {func(p, _ result) { p.at(slow, checkout).failed = map[string]int{"pool_timeout": 250, otherwise: 251} }, "shared, slow"},
		"shared has no checkout traffic":         {func(p, _ result) { *p.at(slow, checkout) = figures{} }, "shared, slow"},
		"apart loses checkout":                   {func(_, a result) { oneLess(a.at(slow, checkout), "queue_overflow") }, "compartments, slow: checkout, products, admin succeed"},
		"apart loses admin":                      {func(_, a result) { oneLess(a.at(slow, admin), late) }, "compartments, slow: checkout, products, admin succeed"},
		"checkout becomes slow":                  {func(_, a result) { a.at(slow, checkout).p99 = 181 * time.Millisecond }, "compartments, slow: p99"},
		"checkout becomes slow on a quiet machine": {func(_, a result) {
			a.at(slow, ping).p99, a.at(slow, products).p99, a.at(slow, checkout).p99 = 0, 0, 111*time.Millisecond
		}, "compartments, slow: p99"},
		"admin becomes slow":         {func(_, a result) { a.at(slow, admin).p99 = 301 * time.Millisecond }, "compartments, slow: p99"},
		"analytics is not exhausted": {func(_, a result) { a.at(slow, analytics).failed["breaker_open"]-- }, "compartments, slow: at least"},
		"analytics is rejected by breaker": {func(_, a result) {
			a.at(slow, analytics).failed = map[string]int{"breaker_open": 460, "queue_overflow": 50}
		}, "compartments, slow: at least"},
		"analytics has no traffic":             {func(_, a result) { *a.at(slow, analytics) = figures{} }, "compartments, slow: at least"},
		"products is lost when full":           {func(_, a result) { oneLess(a.at(crowded, products), "timeout_queued") }, "compartments, crowded: checkout"},
		"products has no need of its fallback": {func(_, a result) { a.at(crowded, products).cached["timeout_queued"]-- }, "compartments, crowded: products"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			pool, apart := good()
			c.spoil(pool, apart)
			fails(t, judgeIncident(pool, apart), c.fails)
		})
	}
}

func TestVerdictNeedsTwoDifferentWays(t *testing.T) {
	pool, apart := good()
	for name, pair := range map[string][2]result{
		"both shared": {pool, pool}, "both apart": {apart, apart}, "swapped": {apart, pool}, "nothing measured": {},
	} {
		if judgeIncident(pair[0], pair[1]).hold() {
			t.Errorf("%s: holds", name)
		}
	}
	if (findings{}).hold() {
		t.Error("no findings hold")
	}
}

func goodOverload() (alone, under result) {
	alone, under = blank(divided, healthy, sale), blank(protected, healthy, sale)
	*alone.at(sale, checkout) = of(1000, 499, map[string]int{late: 251, otherwise: 250}, nil)
	*under.at(healthy, checkout) = of(100, 99, map[string]int{late: 1}, nil)
	*under.at(sale, checkout) = of(1000, 990, map[string]int{late: 10}, nil)
	*under.at(sale, products) = of(1000, 1, map[string]int{"queue_overflow": 999}, nil)
	return alone, under
}

func TestVerdictOfTheOverload(t *testing.T) {
	if f := judgeOverload(goodOverload()); !f.hold() || len(f) != 4 {
		t.Errorf("%+v", f)
	}
	for name, c := range map[string]struct {
		spoil func(alone, under result)
		fails string
	}{
		"checkout survives without a warden": {func(a, _ result) { a.at(sale, checkout).succeeded = 500 }, "compartments, sale"},
		"it is lost for another reason":      {func(a, _ result) { a.at(sale, checkout).failed = map[string]int{late: 250, otherwise: 251} }, "compartments, sale"},
		"it is lost when healthy":            {func(_, u result) { u.at(healthy, checkout).succeeded = 98 }, "warden, healthy"},
		"it is lost under the warden":        {func(_, u result) { u.at(sale, checkout).succeeded = 989 }, "warden, sale: checkout"},
		"it has no traffic":                  {func(_, u result) { *u.at(sale, checkout) = figures{} }, "warden, sale: checkout"},
		"nothing else is served":             {func(_, u result) { u.at(sale, products).succeeded = 0 }, "warden, sale: some of products"},
		"there is no overload":               {func(_, u result) { u.at(sale, products).succeeded = 1000 }, "warden, sale: some of products"},
	} {
		t.Run(name, func(t *testing.T) {
			alone, under := goodOverload()
			c.spoil(alone, under)
			fails(t, judgeOverload(alone, under), c.fails)
		})
	}
	if judgeOverload(result{}, result{}).hold() {
		t.Error("nothing holds")
	}
}

// goodMatrix returns results for which judgeMatrix holds.
func goodMatrix() (all []result) {
	for target := checkout; target <= every; target++ {
		res := blank(overloadTitle(target), healthy, overloaded)
		for p := range res.figures {
			for r := range res.figures[p] {
				res.figures[p][r] = of(1000, 990, map[string]int{late: 10}, nil)
			}
		}
		for r := range routes {
			if target == r || target == every {
				*res.at(overloaded, r) = of(1000, 800, map[string]int{"queue_overflow": 200}, nil)
			}
		}
		all = append(all, res)
	}
	return all
}

func TestVerdictOfTheMatrix(t *testing.T) {
	base := incident()
	if f := judgeMatrix(goodMatrix(), base); !f.hold() || len(f) != 4*4+2*4 {
		t.Errorf("%d findings: %+v", len(f), f)
	}
	for name, c := range map[string]struct {
		spoil func(all []result)
		fails string
	}{
		"one is not overloaded":  {func(all []result) { all[admin].at(overloaded, admin).failed["queue_overflow"]-- }, "admin overloaded: admin is asked"},
		"a bystander is lost":    {func(all []result) { all[products].at(overloaded, checkout).succeeded-- }, "products overloaded, overloaded: checkout"},
		"a bystander is slow":    {func(all []result) { all[analytics].at(overloaded, admin).p99 = time.Second }, "analytics overloaded, overloaded: p99"},
		"it is not well before":  {func(all []result) { all[checkout].at(healthy, admin).succeeded-- }, "checkout overloaded, healthy"},
		"a guarantee is not met": {func(all []result) { all[every].at(overloaded, checkout).succeeded = 299 }, "all overloaded: checkout has"},
	} {
		t.Run(name, func(t *testing.T) {
			all := goodMatrix()
			c.spoil(all)
			fails(t, judgeMatrix(all, base), c.fails)
		})
	}
	if judgeMatrix(goodMatrix()[:4], base).hold() || judgeMatrix(nil, base).hold() {
		t.Error("holds without all overloads")
	}
}
