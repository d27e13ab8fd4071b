// The phases: load and faults of the storefront while it is scraped.
package main

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"
)

// A phase is one recording.
type phase struct {
	name     string
	lasts    time.Duration
	replicas int
	args     []string // of each replica
	env      []string
	busy     bool // needs most of a processor: such phases run one after the other
	load     func(time.Duration) load
	during   func(context.Context, *deployment) error // changes the deployment during the phase; may be nil
}

// usual is the normal load of two replicas; it triples for one minute in ten.
func usual(at time.Duration) load {
	l := load{checkout: 3, products: 5, analytics: 1, admin: 0.5}
	if at%(10*time.Minute) > 9*time.Minute {
		return load{3 * l.checkout, 3 * l.products, 3 * l.analytics, 3 * l.admin}
	}
	return l
}

// well is the healthy time of a phase before its fault.
const well = 4 * time.Minute

// phases returns all phases. The load of each leaves room for the others on two cores; its length lets its rules fire at a scrape
// interval of one minute.
func phases() []phase {
	steady := func(l load) func(time.Duration) load { return func(time.Duration) load { return l } }
	after := func(l load) func(time.Duration) load { // the higher load begins with the fault
		return func(at time.Duration) load {
			if at < well {
				return usual(at)
			}
			return l
		}
	}
	fault := func(what string) []string { return []string{"-fault", what, "-fault-after", well.String()} }
	return []phase{
		{name: "healthy", lasts: 63 * time.Minute, replicas: 2, load: usual, during: func(ctx context.Context, d *deployment) error {
			// A normal hour includes a deployment.
			if err := sleep(ctx, 25*time.Minute); err != nil {
				return err
			}
			return d.roll(ctx, false)
		}},
		{name: "rolling-restart", lasts: 20 * time.Minute, replicas: 3, load: usual, during: func(ctx context.Context, d *deployment) error {
			for i := range 6 { // alternately at a new address and at the same address
				if err := sleep(ctx, 90*time.Second); err != nil {
					return err
				}
				if err := d.roll(ctx, i%2 == 1); err != nil {
					return err
				}
			}
			return nil
		}},
		// A report takes 3 s, and its caller times out after 0.6 s. The breaker opens and lets a probe through now and then.
		{name: "slow", lasts: 42 * time.Minute, replicas: 1, load: steady(load{checkout: 3, products: 5, analytics: 20, admin: 0.5}), args: fault("analytics=3s")},
		// 30 slots and 0.5 s per report: 60 reports/s are served.
		{name: "crowded", busy: true, lasts: 12 * time.Minute, replicas: 1, load: after(load{checkout: 3, products: 5, analytics: 400, admin: 0.5}), args: append(fault("analytics=500ms"), "-way", "compartments")},
		// 70 slots and 2 s per order: 35 orders/s are served; 10 slots and 2 s per count: 5 counts/s.
		{name: "crowded-critical", busy: true, lasts: 12 * time.Minute, replicas: 1, load: after(load{checkout: 70, products: 5, analytics: 1, admin: 50}), args: append(fault("checkout=2s,admin=2s"), "-way", "compartments")},
		// The same behind a warden, which admits fewer requests than the compartments would.
		{name: "critical-rejected", busy: true, lasts: 15 * time.Minute, replicas: 1, load: after(load{checkout: 100, products: 5, analytics: 1, admin: 5}), args: fault("checkout=2s,admin=2s")},
		// A page of products takes 40 ms of the only processor: 25 pages/s.
		{name: "sale", busy: true, lasts: 13 * time.Minute, replicas: 1, env: []string{"GOMAXPROCS=1"}, load: after(load{checkout: 3, products: 75, analytics: 1, admin: 0.5}), args: []string{"-render", "40ms"}},
		{name: "silent-control", lasts: 12 * time.Minute, replicas: 1, load: usual, args: fault("control=hangs")},
		// Few calls, each of which loses a slot: 10 slots in five minutes, 30 in eight.
		{name: "stuck-work", lasts: 18 * time.Minute, replicas: 1, load: steady(load{checkout: 3, products: 5, analytics: 0.06, admin: 0.03}), args: fault("analytics=1h,admin=1h")},
	}
}

// run starts the replicas, generates the load, and runs the phase to its end.
func (p phase) run(ctx context.Context, binary, dir string) (err error) {
	d := &deployment{binary: binary, targets: filepath.Join(dir, "targets", p.name+".json"), name: p.name, args: p.args, env: p.env}
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, p.lasts)
	defer cancel()
	var shopping sync.WaitGroup
	defer func() {
		cancel()
		shopping.Wait()
		err = errors.Join(err, d.stop())
	}()
	for range p.replicas {
		if err := d.start(whole, "127.0.0.1:0"); err != nil {
			return err
		}
	}
	shopping.Go(func() { d.shopping(ctx, p.load) })
	if p.during != nil {
		if err := p.during(ctx, d); err != nil && ctx.Err() == nil {
			return err
		}
	}
	<-ctx.Done()
	return whole.Err()
}
