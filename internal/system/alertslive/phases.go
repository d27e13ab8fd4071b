// SPDX-License-Identifier: Apache-2.0

// The phases: load and faults of the storefront while it is scraped.
package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stopbank/stopbank/internal/system/deploy"
)

// A phase is one recording.
type phase struct {
	name     string
	lasts    time.Duration
	replicas int
	busy     bool                                            // needs most of a processor: such phases run one after the other
	program  string                                          // a folder of examples; "": storefront
	load     func(time.Duration) deploy.Load                 // of the storefront
	env      []string                                        // of each replica
	args     []string                                        // of each replica
	during   func(context.Context, *deploy.Deployment) error // changes the deployment during the phase; may be nil
}

// well is the healthy time of a phase before its fault.
const well = 4 * time.Minute

// phases returns all phases. The load of each leaves room for the others on two cores; its length lets its rules fire at a scrape
// interval of one minute.
func phases() []phase {
	after := func(l deploy.Load) func(time.Duration) deploy.Load { // the higher load begins with the fault
		return func(at time.Duration) deploy.Load {
			if at < well {
				return deploy.Usual(at)
			}
			return l
		}
	}
	rising := func(l deploy.Load) func(time.Duration) deploy.Load { // within a minute
		return func(at time.Duration) deploy.Load {
			now, part := deploy.Usual(at), min((at-well).Seconds()/60, 1)
			for i := range now {
				now[i] += max(part, 0) * max(l[i]-now[i], 0)
			}
			return now
		}
	}
	fault := func(what string, more ...string) []string {
		return append([]string{"-fault", what, "-fault-after", well.String()}, more...)
	}
	return []phase{
		{name: "healthy", lasts: 63 * time.Minute, replicas: 2, load: deploy.Usual,
			during: func(ctx context.Context, d *deploy.Deployment) error { // a normal hour includes a deployment
				return errors.Join(deploy.Sleep(ctx, 25*time.Minute), d.Roll(ctx, false))
			}},
		{name: "rolling-restart", lasts: 20 * time.Minute, replicas: 3, load: deploy.Usual,
			during: func(ctx context.Context, d *deploy.Deployment) (err error) {
				for i := range 6 { // alternately at a new address and at the same address
					err = errors.Join(err, deploy.Sleep(ctx, 90*time.Second), d.Roll(ctx, i%2 == 1))
				}
				return err
			}},
		// A report takes 3 s, and its caller times out after 0.6 s. The breaker opens and lets a probe through now and then.
		{name: "slow", lasts: 42 * time.Minute, replicas: 1, load: deploy.Steady(deploy.Load{3, 5, 20, 0.5}), args: fault("analytics=3s")},
		// 30 slots and 0.5 s per report: 60 reports/s are served.
		{name: "crowded", busy: true, lasts: 12 * time.Minute, replicas: 1, load: after(deploy.Load{3, 5, 400, 0.5}),
			args: fault("analytics=500ms", "-way", "compartments")},
		// 70 slots and 2 s per order: 35 orders/s are served; 10 slots and 2 s per count: 5 counts/s.
		{name: "crowded-critical", busy: true, lasts: 12 * time.Minute, replicas: 1, load: after(deploy.Load{70, 5, 1, 50}),
			args: fault("checkout=2s,admin=2s", "-way", "compartments")},
		// The same behind a warden, which admits fewer requests than the compartments would.
		{name: "critical-rejected", busy: true, lasts: 15 * time.Minute, replicas: 1, load: after(deploy.Load{100, 5, 1, 5}),
			args: fault("checkout=2s,admin=2s")},
		// A page of products takes 40 ms of the only processor: 25 pages/s.
		{name: "sale", busy: true, lasts: 13 * time.Minute, replicas: 1, load: after(deploy.Load{3, 75, 1, 0.5}),
			env: []string{"GOMAXPROCS=1"}, args: []string{"-render", "40ms"}},
		// A pool of 100 connections and 0.7 s per query: 140 requests/s are served, of 200 in the end.
		{
			name: "pool", lasts: 16 * time.Minute, replicas: 1, load: rising(deploy.Load{20, 180, 1, 1}),
			args: []string{"-way", "pool", "-fault", "checkout=700ms,products=700ms,admin=700ms"},
		},
		{name: "silent-control", lasts: 12 * time.Minute, replicas: 1, load: deploy.Usual, args: fault("control=hangs")},
		// Few calls, each of which loses a slot: 10 slots in five minutes, 30 in eight.
		{name: "stuck-work", lasts: 18 * time.Minute, replicas: 1, load: deploy.Steady(deploy.Load{3, 5, 0.06, 0.03}),
			args: fault("analytics=1h,admin=1h")},
		// Ten requests a second never return, behind a warden that knows no timeout: its limit makes room for 512 of them.
		{name: "hung-handlers", lasts: 13 * time.Minute, replicas: 1, load: after(deploy.Load{3, 5, 1, 10}),
			args: fault("admin=hangs", "-way", "defaults")},
		// A list takes 6 s, and its clients leave after 3.
		{name: "clients-leave", lasts: 12 * time.Minute, replicas: 1, load: after(deploy.Load{3, 3, 1, 0.5}),
			args: fault("products=6s", "-way", "pool")},
		// Every order ends in a panic.
		{name: "tasks-fail", lasts: 12 * time.Minute, replicas: 1, load: deploy.Usual, args: fault("checkout=panics")},
		// Each count keeps its connection, of 100 for all routes: they are gone in three minutes. Then hardly anything runs, and fails.
		{name: "connections-leak", lasts: 18 * time.Minute, replicas: 1, load: after(deploy.Load{1, 1, 0.3, 0.7}),
			args: fault("admin=leaks", "-way", "pool")},
		// Every third order takes 1.5 s.
		{name: "critical-slow", lasts: 15 * time.Minute, replicas: 1, load: deploy.Usual, args: fault("checkout=1500ms/3")},
		// A worker: the handlers of one partition hang, and a partition comes whose ledger cannot be opened.
		// Nothing fires before well all the same.
		{name: "stalled", lasts: 8 * time.Minute, replicas: 1, program: "watched", args: []string{"-fault-after", "2m"}},
	}
}

// run starts the replicas, generates the load, scrapes, and returns what it has scraped by the end of the phase.
func (p phase) run(ctx context.Context, binary string) (targets []target, err error) {
	read, shown, err := selectors()
	if err != nil {
		return nil, err
	}
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, p.lasts)
	d := &deploy.Deployment{Binary: binary, Args: p.args, Env: p.env}
	if p.load != nil {
		d.Args = append([]string{"-serve", "-until-eof", "-listen", "127.0.0.1:0"}, d.Args...)
	}
	s := &scraper{read: read, shown: shown, began: time.Now(), seen: map[scraped]map[string]map[int]string{}}
	var background sync.WaitGroup
	defer func() {
		cancel()
		background.Wait()
		targets, err = s.targets(), errors.Join(err, whole.Err(), d.Stop())
	}()
	for range p.replicas {
		if _, err := d.Start("127.0.0.1:0"); err != nil {
			return nil, err
		}
	}
	if p.load != nil {
		background.Go(func() { d.Shopping(ctx, p.load) })
	}
	for _, every := range intervals() {
		background.Go(func() { s.scrape(ctx, d, every) })
	}
	if p.during != nil {
		if err := p.during(ctx, d); err != nil && ctx.Err() == nil {
			return nil, err
		}
	}
	<-ctx.Done()
	return nil, nil
}
