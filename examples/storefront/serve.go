// -serve: the shop runs, with its console, until it is interrupted.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// shopLine begins the line with the shop's URL, which parent processes parse.
const shopLine = "shop:    "

// serving is the configuration of -serve.
type serving struct {
	shopConfig

	ops     string // address of the operators' listener
	token   string
	traffic bool // send the scenario in a loop
	seed    uint64
	fault   fault
	after   time.Duration // from the start of the shop to the fault
}

// check validates flags and variables.
func (cfg serving) check() error {
	switch host, _, err := net.SplitHostPort(cfg.ops); {
	case cfg.way != divided && cfg.way != protected:
		return &InvalidError{"-way", fmt.Sprintf("%q", cfg.way), divided + " or " + protected}
	case cfg.fault.control && cfg.way != protected:
		return &InvalidError{"-fault", "control=hangs", "only with -way " + protected}
	case cfg.after < 0:
		return &InvalidError{"-fault-after", cfg.after.String(), "0s or more"}
	case cfg.render < 0 || cfg.render > time.Second:
		return &InvalidError{"-render", cfg.render.String(), "0 to 1s"}
	case err != nil:
		return &InvalidError{"-ops", fmt.Sprintf("%q", cfg.ops), "host:port on loopback"}
	case host != "localhost" && !net.ParseIP(host).IsLoopback():
		return &InvalidError{"-ops", fmt.Sprintf("%q", cfg.ops), "a loopback address, because the console is not public"}
	case cfg.token != "" && len(cfg.token) < shortestToken:
		return &InvalidError{tokenVariable, fmt.Sprintf("%d bytes long", len(cfg.token)),
			fmt.Sprintf("%d bytes or more, or empty to disable /plan and /mode", shortestToken),
		}
	}
	return nil
}

// serve serves until ctx ends, then shuts down gracefully.
func (cfg serving) serve(ctx context.Context, stdout, stderr io.Writer) (err error) {
	if err := cfg.check(); err != nil {
		return err
	}
	watch, err := newObservers(stderr)
	if err != nil {
		return err
	}
	cfg.limiter, cfg.set = watch.limiter(), watch.set()
	s, err := openShop(ctx, cfg.shopConfig)
	if err != nil {
		return err
	}
	defer func() {
		flush, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err = errors.Join(err, s.close(), watch.log.Flush(flush))
	}()
	s.deploy(cfg.scenario.phases[0].hold)
	l, err := net.Listen("tcp", cfg.ops)
	if err != nil {
		return err
	}
	operators, err := newOps(l, s, watch, cfg.token)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer func() { err = errors.Join(err, operators.close()) }()
	fmt.Fprintf(stdout, "%s%s\nconsole: %s/console/\nmetrics: %s/metrics\n", shopLine, s.url, operators.url, operators.url)
	if cfg.token == "" {
		fmt.Fprintf(stdout, "plan:    disabled; set %s to enable /plan and /mode\n", tokenVariable)
	} else {
		fmt.Fprintf(stdout, "plan:    %s/plan (bearer token: %s)\n", operators.url, tokenVariable)
		if s.warden != nil {
			fmt.Fprintf(stdout, "mode:    %s/mode (same token)\n", operators.url)
		}
	}

	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	if cfg.traffic {
		background.Go(func() { cfg.loop(ctx, s, stdout) })
	}
	if cfg.fault.given != "" {
		background.Go(func() { cfg.fault.inject(ctx, s, cfg.after) })
	}
	select {
	case <-ctx.Done():
	case err = <-s.served:
		s.served <- err // for close
	case err = <-operators.served:
		operators.served <- err
	}
	return err
}

// loop sends the traffic of the scenario until ctx ends.
func (cfg serving) loop(ctx context.Context, s *shop, stdout io.Writer) {
	for seed := cfg.seed; ctx.Err() == nil; seed++ {
		cfg.scenario.run(ctx, cfg.way, seed, stage{
			url:    s.url,
			inUse:  s.way.inUse,
			report: func(moment) {},
			enter: func(p phase) {
				s.deploy(p.hold)
				fmt.Fprintf(stdout, "%s  %s\n", time.Now().Format(time.TimeOnly), p.name)
			},
		})
	}
}

// untilEOF returns a context that also ends when r ends. A parent process holds the other end, so this process exits even if
// the parent crashes.
func untilEOF(ctx context.Context, r io.Reader) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, r)
		cancel()
	}()
	return ctx, cancel
}
