// SPDX-License-Identifier: Apache-2.0

// The catalogue: one row a fault. What only a hook can do is in hooks.go.
package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/stopbank/stopbank/internal/system/deploy"
)

// A fault is one row of the catalogue.
type fault struct {
	name  string
	about string   // what happens, for the table of results
	named []string // names of the runbook that are right
	// want are labels that the name has to carry: instance and partition (those of the ill process), or compartment=checkout.
	want []string

	pods  int                                // of the storefront; 0: 2
	args  []string                           // of each pod
	env   []string                           // of each pod
	load  func(time.Duration) deploy.Load    // of the storefront, by the time since the injection, negative before; nil: usual
	ill   string                             // -fault of one pod, from the injection on
	task  string                             // -fault of one worker of the orders, from the injection on
	hook  func(context.Context, *game) error // runs from the injection until ctx ends; nil: none
	alone bool                               // other games would suffer: it is played when they are over
	calm  bool                               // no fault: right is who pages nobody and names nothing, or one of named
	wait  time.Duration                      // from the injection until the game is given up; 0: 12 minutes
}

// from is a load that changes with the injection.
func from(before, after deploy.Load) func(time.Duration) deploy.Load {
	return func(at time.Duration) deploy.Load {
		if at < 0 {
			return before
		}
		return after
	}
}

// catalogue returns all faults. Together the games of a round have to fit on two processors: each load is as small as its rules allow.
func catalogue() []fault {
	one := []string{"GOMAXPROCS=1"}
	return []fault{
		{
			name: "hung", about: "each handler of a route waits for ever, before it asks for a slot of its compartment", ill: "admin=hangs",
			load: deploy.Steady(deploy.Load{15, 25, 5, 10}), named: []string{"hung handlers"}, want: []string{"instance"},
		},
		{
			name: "clients-leave", about: "a query takes longer than clients wait for", ill: "products=5s", args: []string{"-way", "pool"},
			named: []string{"slow dependency"}, want: []string{"instance"},
		},
		{
			name: "slow-critical", about: "a quarter of the checkouts takes 1.5 s", ill: "checkout=1.5s/4",
			named: []string{"slow dependency"}, want: []string{"instance"},
		},
		{
			name: "retries", about: "clients with a timeout of 1 s try again at once, four times; a rush of half a minute starts them",
			pods: 1, env: one, args: []string{"-render", "25ms"}, alone: true,
			load: deploy.Steady(deploy.Load{2, 1, 1, 1}), hook: retryFleet, named: []string{"retry fleet"},
		},
		{
			name: "freeze", about: "the process is stopped for 1.4 s of every 3 s", hook: freeze, named: []string{"frozen process"},
			want: []string{"instance"},
		},
		{
			name: "leak", about: "5 MB a second are kept, with GOMEMLIMIT at 150 MiB", ill: "memory=leaks",
			env: []string{"GOMAXPROCS=1", "GOMEMLIMIT=150MiB"}, named: []string{"memory leak"}, want: []string{"instance"},
		},
		{
			name: "sale", about: "three times as many pages as the processor can render", pods: 1, env: one,
			args: []string{"-render", "40ms"}, alone: true, load: from(deploy.Load{3, 5, 1, 0.5}, deploy.Load{3, 75, 1, 0.5}),
			named: []string{"overload"},
		},
		{
			name: "slow-report", about: "each report takes 3 s, and its breaker opens", ill: "analytics=3s",
			load: deploy.Steady(deploy.Load{3, 5, 12, 0.5}), named: []string{"slow dependency"}, want: []string{"instance", "compartment=analytics"},
		},
		{
			name: "crowded", about: "more checkouts than their compartment has slots for", pods: 1,
			args: []string{"-way", "compartments", "-fault", "checkout=600ms"},
			load: from(deploy.Load{25, 5, 1, 0.5}, deploy.Load{200, 5, 1, 0.5}), named: []string{"overload"},
			want: []string{"compartment=checkout"},
		},
		{
			name: "silent", about: "the sampler of the warden hangs", ill: "control=hangs", named: []string{"silent controller"},
			want: []string{"instance"},
		},
		{
			name: "stuck", about: "queries of two routes last an hour, whatever their callers do", ill: "analytics=1h,admin=1h",
			named: []string{"stuck work", "slow dependency"}, want: []string{"instance"},
		},
		{
			name: "pool", about: "more requests than the pool has connections for, of 0.7 s each", pods: 1,
			args:  []string{"-way", "pool", "-fault", "checkout=700ms,products=700ms,admin=700ms"},
			load:  from(deploy.Load{3, 30, 1, 1}, deploy.Load{10, 170, 1, 1}),
			named: []string{"pool is full"}, want: []string{"instance"},
		},
		{
			name: "tenants", about: "a client invents a key for each request", args: []string{"-way", "compartments", "-partner", "5", "-fault", "analytics=400ms"},
			hook:  asking(150, 3*time.Second, "/analytics/report", func() string { return fmt.Sprint("partner-", rand.Uint64()) }),
			named: []string{"invented tenants"}, want: []string{"compartment=analytics"},
		},
		{
			name: "noisy", about: "one tenant asks for far more than its slots", args: []string{"-partner", "5", "-fault", "analytics=250ms"},
			hook:  asking(90, 3*time.Second, "/analytics/report", func() string { return "partner-1" }),
			named: []string{"noisy tenant"}, want: []string{"compartment=analytics"},
		},
		{
			name: "dry-run", about: "an operator leaves a limiter in dry run", hook: dryRun, named: []string{"not enforcing"},
			want: []string{"instance"},
		},
		{
			name: "bad-plan", about: "an operator takes the slots of checkout", args: []string{"-fault", "checkout=500ms"},
			load: deploy.Steady(deploy.Load{36, 5, 1, 0.5}), hook: badPlan, named: []string{"bad plan"}, want: []string{"instance"},
		},
		{
			name: "deadlines", about: "half of the clients of a page that takes 400 ms wait for 150 ms only", args: []string{"-fault", "products=400ms"},
			hook: asking(5, 150*time.Millisecond, "/products", func() string { return "" }), named: []string{"deadlines too short"},
		},
		{
			name: "neighbour", about: "other processes keep the processors busy", args: []string{"-render", "40ms"}, alone: true,
			load: deploy.Steady(deploy.Load{3, 15, 1, 0.5}), hook: neighbour, named: []string{"neighbour takes the processor"},
		},
		{
			name: "stalled", about: "the handlers of one partition hang", task: "handlers=hang", named: []string{"hung record handlers"},
			want: []string{"instance", "partition"},
		},
		{
			name: "fenced", about: "another program takes the leases of running handlers", task: "leases=taken",
			named: []string{"two owners", "stale worker"}, want: []string{"instance"}, wait: 20 * time.Minute,
		},
		{
			name: "poison", about: "one record fails at each attempt", task: "order=poison", named: []string{"poison record"},
			want: []string{"instance", "partition"},
		},
		{
			name: "letters", about: "one record is given up, and no dead letter is accepted", task: "letters=rejected",
			named: []string{"dead letters rejected"}, want: []string{"instance", "partition"},
		},
		{
			name: "unowned", about: "a member holds a partition, and nobody works on it", task: "partition=idle",
			named: []string{"partition without owner"},
		},
		{
			name: "panicking", about: "a release whose checkout writes to a nil map: each one ends in a panic", ill: "checkout=panics",
			named: []string{"failing handlers", "panics"}, want: []string{"instance"},
		},
		{
			name: "leaked-connections", about: "one route does not give its connection back, and all routes share the pool", ill: "admin=leaks",
			args: []string{"-way", "pool"}, load: deploy.Steady(deploy.Load{3, 5, 1, 2}),
			named: []string{"connection leak"}, want: []string{"instance"},
		},
		{
			name: "full-minute", about: "clients with a timer: 200 requests at once, at each full minute, for a route with 10 slots",
			args: []string{"-fault", "admin=300ms"}, hook: fullMinute,
			named: []string{"overload", "too few slots"}, want: []string{"compartment=admin"},
		},
		{
			name: "engine-paused", about: "the host of the engine stands still: its connections stay open, and nothing answers",
			hook: pauseEngine, named: []string{"engine down"},
		},
		{
			name: "refused", about: "what the handlers of one worker call refuses at once: each of its records fails", task: "handlers=fail",
			named: []string{"failing handlers", "failing dependency"}, want: []string{"instance"},
		},
		{
			name: "streams", about: "health: 60 streams that do not end", args: []string{"-way", "defaults", "-fault", "admin=streams"},
			load: deploy.Steady(deploy.Load{3, 5, 1, 0}), hook: openStreams, calm: true, named: []string{"streams"}, wait: 10 * time.Minute,
		},
	}
}

// right judges what the operator has said. ill are the labels of the process that is ill.
func (f *fault) right(said *named, ill labels) bool {
	found := false
	for _, name := range f.named {
		found = found || said.Name == name
	}
	for _, want := range f.want {
		name, value, fixed := strings.Cut(want, "=")
		if !fixed {
			value = ill[name]
		}
		found = found && said.Labels[name] == value
	}
	return found
}
