// The phases: what the storefront goes through while it is scraped.
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
	busy     bool // it needs much of a processor: such phases take turns
	load     func(time.Duration) load
	during   func(context.Context, *deployment) error // what is done to the deployment meanwhile; may be nil
}

// usual is what two replicas have to do all day; every ten minutes three times as much, for a minute.
func usual(at time.Duration) load {
	l := load{checkout: 3, products: 5, analytics: 1, admin: 0.5}
	if at%(10*time.Minute) > 9*time.Minute {
		return load{3 * l.checkout, 3 * l.products, 3 * l.analytics, 3 * l.admin}
	}
	return l
}

// well is how long a phase is healthy before its fault.
const well = 4 * time.Minute

// phases: each is as thin as two cores can serve beside the others, and as long as the rules that are to fire in it take at a scrape a minute.
func phases() []phase {
	steady := func(l load) func(time.Duration) load { return func(time.Duration) load { return l } }
	after := func(l load) func(time.Duration) load { // the crowd comes with the fault
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
			// An ordinary hour has a deploy.
			if err := sleep(ctx, 25*time.Minute); err != nil {
				return err
			}
			return d.roll(ctx, false)
		}},
		{name: "rolling-restart", lasts: 20 * time.Minute, replicas: 3, load: usual, during: func(ctx context.Context, d *deployment) error {
			for i := range 6 { // elsewhere and at the same address in turn
				if err := sleep(ctx, 90*time.Second); err != nil {
					return err
				}
				if err := d.roll(ctx, i%2 == 1); err != nil {
					return err
				}
			}
			return nil
		}},
		// A report takes 3 s, and its caller gives up after 0.6 s. The breaker opens and lets one through now and then.
		{name: "slow", lasts: 42 * time.Minute, replicas: 1, load: steady(load{checkout: 3, products: 5, analytics: 20, admin: 0.5}), args: fault("analytics=3s")},
		// 30 slots and 0.5 s a report: 60 a second are served.
		{name: "crowded", busy: true, lasts: 12 * time.Minute, replicas: 1, load: after(load{checkout: 3, products: 5, analytics: 400, admin: 0.5}), args: append(fault("analytics=500ms"), "-way", "compartments")},
		// 70 slots and 2 s an order: 35 a second are served; 10 slots and 2 s a count: 5 a second.
		{name: "crowded-critical", busy: true, lasts: 12 * time.Minute, replicas: 1, load: after(load{checkout: 70, products: 5, analytics: 1, admin: 50}), args: append(fault("checkout=2s,admin=2s"), "-way", "compartments")},
		// The same behind a warden: it lets fewer in than the compartments would.
		{name: "critical-rejected", busy: true, lasts: 15 * time.Minute, replicas: 1, load: after(load{checkout: 100, products: 5, analytics: 1, admin: 5}), args: fault("checkout=2s,admin=2s")},
		// A page of products takes 40 ms of the one processor: 25 a second.
		{name: "sale", busy: true, lasts: 13 * time.Minute, replicas: 1, env: []string{"GOMAXPROCS=1"}, load: after(load{checkout: 3, products: 75, analytics: 1, admin: 0.5}), args: []string{"-render", "40ms"}},
		{name: "silent-control", lasts: 12 * time.Minute, replicas: 1, load: usual, args: fault("control=hangs")},
		// Seldom asked for, and each time a slot is lost: 10 slots in five minutes, 30 in eight.
		{name: "stuck-work", lasts: 18 * time.Minute, replicas: 1, load: steady(load{checkout: 3, products: 5, analytics: 0.06, admin: 0.03}), args: fault("analytics=1h,admin=1h")},
	}
}

// run starts the replicas, sends customers, and lets the phase take its course.
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
