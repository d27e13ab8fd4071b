// SPDX-License-Identifier: Apache-2.0

// Command caddy puts Caddy with Stopbank, and what else is in use for that, in front of a service with few workers, and floods it:
// every front in turn, each with a fresh service, the same clients and the same arrivals.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"time"
)

func main() {
	var l lab
	only := flag.String("only", "", "the cells whose name matches this regular expression, such as gunicorn/4x/ours, cost or reload")
	flag.DurationVar(&l.length, "for", 20*time.Second, "the time at each load, 8s to 2m")
	flag.IntVar(&l.rounds, "rounds", 3, "of each cell, 1 to 100; each second one in the reverse order")
	flag.IntVar(&l.starts, "starts", 20, "cold starts of ours in front of a service that finishes abandoned work, at 2x, 0 to 100")
	flag.IntVar(&l.requests, "requests", 4000, "of the comparison of costs, 100 to 1000000")
	out := flag.String("o", "", "root of a checkout, whose docs/evidence/caddy.json keeps the runs, and whose page is made of it; empty: only print")
	render := flag.Bool("render", false, "measure nothing, write the page again")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := l.run(ctx, *only, *out, *render); err != nil {
		fmt.Fprintln(os.Stderr, "caddy:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to stop
	}
}

// lab has the flags, and where the programs are.
type lab struct {
	length                   time.Duration
	rounds, starts, requests int
	root, dir                string // of the checkout; for configurations
	caddy, flood             string
}

// patience is when a client leaves.
const patience = time.Second

// loads are multiples of what the service can do.
var loads = []float64{1, 2, 4}

// run measures, and writes the page.
func (l *lab) run(ctx context.Context, only, out string, render bool) error {
	switch {
	case l.length < 8*time.Second || l.length > 2*time.Minute:
		return fmt.Errorf("-for is %v; allowed: 8s to 2m", l.length)
	case l.rounds < 1 || l.rounds > 100:
		return fmt.Errorf("-rounds is %d; allowed: 1 to 100", l.rounds)
	case l.starts < 0 || l.starts > 100:
		return fmt.Errorf("-starts is %d; allowed: 0 to 100", l.starts)
	case l.requests < 100 || l.requests > 1_000_000:
		return fmt.Errorf("-requests is %d; allowed: 100 to 1000000", l.requests)
	}
	which, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	r, err := open(out)
	if err != nil {
		return err
	}
	if render {
		return r.write(out)
	}
	if l.root, err = filepath.Abs(filepath.Join("..", "..")); err != nil {
		return err
	}
	if l.dir, err = os.MkdirTemp("", "caddy"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(l.dir) }()
	if err := l.build(ctx); err != nil {
		return err
	}
	r.Go, r.Processors, r.Versions = runtime.Version(), runtime.NumCPU(), l.versions(ctx)
	failed := l.measure(ctx, which, r) // what was measured before that is kept
	return errors.Join(failed, r.write(out))
}

// build makes the programs: a stranger gets them by go run.
func (l *lab) build(ctx context.Context) error {
	for at, folder := range map[*string]string{&l.caddy: "examples/caddy", &l.flood: "warden/flood"} {
		*at = filepath.Join(l.dir, filepath.Base(folder)+".bin")
		cmd := exec.CommandContext(ctx, "go", "build", "-o", *at, ".")
		cmd.Dir, cmd.Env, cmd.Stderr = filepath.Join(l.root, folder), append(os.Environ(), "GOWORK=off"), os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("building %s: %w", folder, err)
		}
	}
	return nil
}

// measure runs all cells that are asked for.
func (l *lab) measure(ctx context.Context, which *regexp.Regexp, r *report) (err error) {
	if phpFPM() == "" {
		fmt.Println("php-fpm is not installed: its cells are left out")
	}
	for round := range l.rounds {
		order := slices.Clone(fronts)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, service := range services {
			if service.fastcgi && phpFPM() == "" {
				continue
			}
			capacity := 0.0
			for _, load := range service.loads {
				for _, f := range order {
					c := cell{Service: service.name, Load: load, Front: f.name}
					if !which.MatchString(c.name()) {
						continue
					}
					if capacity == 0 {
						if capacity, err = l.capacity(ctx, service); err != nil {
							return err
						}
					}
					if err := l.flooded(ctx, service, f, &c, capacity, uint64(round+1), false); err != nil { //nolint:gosec // it is small
						return fmt.Errorf("%s: %w", c.name(), err)
					}
					r.keep(c)
				}
			}
		}
	}
	for start := range l.starts {
		c := cell{Service: "gunicorn", Load: 2, Front: "ours", Cold: true}
		if !which.MatchString("starts") {
			break
		}
		if err := l.flooded(ctx, services[0], frontNamed("ours"), &c, 100, uint64(100+start), false); err != nil { //nolint:gosec // it is small
			return err
		}
		r.keep(c)
	}
	if which.MatchString("reload") {
		for round := range l.rounds {
			for _, f := range []string{"bare", "ours"} {
				c := cell{Service: "gunicorn", Load: 4, Front: f, Reload: true}
				if err := l.flooded(ctx, services[0], frontNamed(f), &c, 100, uint64(round+1), true); err != nil { //nolint:gosec // it is small
					return err
				}
				r.keep(c)
			}
		}
	}
	if which.MatchString("cost") {
		cost, err := l.cost(ctx)
		if err != nil {
			return err
		}
		r.Cost = cost
	}
	return nil
}

// flooded is one run: a fresh service behind a fresh front, flooded from its first second on.
func (l *lab) flooded(ctx context.Context, s service, f front, c *cell, capacity float64, seed uint64, reload bool) (err error) {
	behind, err := l.start(ctx, s)
	if err != nil {
		return err
	}
	defer behind.stop()
	p, err := l.mount(ctx, f, l.to(s, behind))
	if err != nil {
		return err
	}
	defer p.stop()
	c.LoadAverage = loadAverage()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if !reload {
			return
		}
		select {
		case <-time.After(l.length / 2):
			c.Limit = p.limit(ctx)
			if failed := p.reload(ctx); failed != nil {
				err = failed
			}
			c.LimitAfter = p.limit(ctx)
		case <-ctx.Done():
		}
	}()
	run, failed := l.send(ctx, p.addr, c.Load, capacity, seed)
	<-ended
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	c.fill(run, capacity)
	fmt.Printf("%-28s goodput %.3f, critical %.3f, hung %.3f, load average %.1f\n", c.name(), c.Goodput, c.Critical, c.Hung, c.LoadAverage)
	return nil
}
