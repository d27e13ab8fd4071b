package main

// The verdict can fail in every way that it should.

import (
	"strings"
	"testing"
)

// good returns results for which the verdict holds, each finding exactly at its limit.
func good() (shared, isolated result) {
	for p := range phases {
		for r := range routes {
			shared.figures[p][r].count[succeeded] = 1000
			isolated.figures[p][r].count[succeeded] = 1000
		}
	}
	for _, r := range protected {
		for _, f := range []*figures{&shared.figures[healthy][r], &isolated.figures[healthy][r], &isolated.figures[slow][r]} {
			f.count = [outcomes]int{succeeded: 990, clientTimeout: 10}
		}
	}
	shared.figures[slow][checkout].count = [outcomes]int{succeeded: 499, poolTimeout: 251, clientTimeout: 250}
	isolated.figures[slow][analytics].count = [outcomes]int{gateRejected: 500, clientTimeout: 500}
	return shared, isolated
}

func TestVerdictHoldsAtItsLimits(t *testing.T) {
	shared, isolated := good()
	findings, holds := judge(shared, isolated, demoLimits)
	if !holds {
		t.Fatalf("does not hold: %+v", findings)
	}
	if len(findings) != 5 {
		t.Errorf("%d findings, want 5: %+v", len(findings), findings)
	}
}

// Every finding can fail, alone, by one request.
func TestVerdictFails(t *testing.T) {
	type results struct{ shared, isolated *result }
	oneMore := func(f *figures, from, to outcome) { f.count[from]--; f.count[to]++ }
	cases := map[string]struct {
		spoil func(results)
		fails string // what the failing finding begins with
	}{
		"shared is lost without the slow query": {func(r results) {
			oneMore(&r.shared.figures[healthy][checkout], succeeded, poolTimeout)
		}, "shared pool, healthy"},
		"shared has no healthy admin traffic": {func(r results) {
			r.shared.figures[healthy][admin] = figures{}
		}, "shared pool, healthy"},
		"isolated is lost without the slow query": {func(r results) {
			oneMore(&r.isolated.figures[healthy][products], succeeded, otherFailure)
		}, "isolated, healthy"},
		"shared keeps half of checkout": {func(r results) {
			oneMore(&r.shared.figures[slow][checkout], clientTimeout, succeeded)
		}, "shared pool, slow"},
		"shared loses checkout to something else": {func(r results) {
			oneMore(&r.shared.figures[slow][checkout], poolTimeout, otherFailure)
		}, "shared pool, slow"},
		"shared has no checkout traffic": {func(r results) {
			r.shared.figures[slow][checkout] = figures{}
		}, "shared pool, slow"},
		"isolated loses checkout": {func(r results) {
			oneMore(&r.isolated.figures[slow][checkout], succeeded, gateRejected)
		}, "isolated, slow: checkout"},
		"isolated loses products": {func(r results) {
			oneMore(&r.isolated.figures[slow][products], succeeded, poolTimeout)
		}, "isolated, slow: checkout"},
		"isolated loses admin": {func(r results) {
			oneMore(&r.isolated.figures[slow][admin], succeeded, clientTimeout)
		}, "isolated, slow: checkout"},
		"analytics is not exhausted": {func(r results) {
			oneMore(&r.isolated.figures[slow][analytics], gateRejected, succeeded)
		}, "isolated, slow: the gate"},
		"analytics has no traffic": {func(r results) {
			r.isolated.figures[slow][analytics] = figures{}
		}, "isolated, slow: the gate"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			shared, isolated := good()
			c.spoil(results{&shared, &isolated})
			findings, holds := judge(shared, isolated, demoLimits)
			if holds {
				t.Fatal("holds")
			}
			for _, f := range findings {
				if should := !strings.HasPrefix(f.Claim, c.fails); f.Holds != should {
					t.Errorf("%q holds: %v, want %v", f.Claim, f.Holds, should)
				}
			}
		})
	}
}

func TestVerdictNeedsTwoDifferentWays(t *testing.T) {
	shared, isolated := good()
	for name, pair := range map[string][2]result{
		"both shared": {shared, shared}, "both isolated": {isolated, isolated},
		"swapped": {isolated, shared}, "nothing measured": {},
	} {
		if _, holds := judge(pair[0], pair[1], demoLimits); holds {
			t.Errorf("%s: holds", name)
		}
	}
}
