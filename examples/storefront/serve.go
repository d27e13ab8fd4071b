// -serve: the shop stays open, with the console beside it, until it is interrupted.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// shopLine begins the line that says where the shop is; a program that started this one reads it.
const shopLine = "shop:    "

// serving is what the flags of -serve say.
type serving struct {
	shopConfig

	ops     string // address of the operators' listener
	token   string
	traffic bool // send the scenario again and again
	seed    uint64
	fault   fault
	after   time.Duration // since the shop opened, until the fault
}

// check finds what is wrong with flags and variables.
func (cfg serving) check() error {
	switch host, _, err := net.SplitHostPort(cfg.ops); {
	case cfg.way != divided && cfg.way != protected:
		return &InvalidError{"-way", fmt.Sprintf("%q", cfg.way), divided + " or " + protected}
	case cfg.fault.control && cfg.way != protected:
		return &InvalidError{"-fault", "control=hangs", "that only with -way " + protected}
	case cfg.after < 0:
		return &InvalidError{"-fault-after", cfg.after.String(), "0s or more"}
	case cfg.render < 0 || cfg.render > time.Second:
		return &InvalidError{"-render", cfg.render.String(), "0 to 1s"}
	case err != nil:
		return &InvalidError{"-ops", fmt.Sprintf("%q", cfg.ops), "host:port of this machine's loopback"}
	case host != "localhost" && !net.ParseIP(host).IsLoopback():
		return &InvalidError{"-ops", fmt.Sprintf("%q", cfg.ops), "an address of this machine's loopback: what operators see is not for everybody"}
	case cfg.token != "" && len(cfg.token) < shortestToken:
		return &InvalidError{tokenVariable, fmt.Sprintf("%d bytes long", len(cfg.token)), fmt.Sprintf("%d bytes or more, or nothing: no resizing", shortestToken)}
	}
	return nil
}

// serve serves until ctx ends, and then takes everything down in order.
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
		fmt.Fprintf(stdout, "plan:    not to be changed; set %s to change it while the shop is open\n", tokenVariable)
	} else {
		fmt.Fprintf(stdout, "plan:    %s/plan, with the token of %s\n", operators.url, tokenVariable)
		if s.warden != nil {
			fmt.Fprintf(stdout, "mode:    %s/mode, with the same token\n", operators.url)
		}
	}

	ctx, cancel := context.WithCancel(ctx)
	var shopping sync.WaitGroup
	defer shopping.Wait()
	defer cancel()
	if cfg.traffic {
		shopping.Go(func() { cfg.again(ctx, s, stdout) })
	}
	if cfg.fault.given != "" {
		shopping.Go(func() { cfg.fault.strike(ctx, s, cfg.after) })
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

// again sends the scenario until ctx ends.
func (cfg serving) again(ctx context.Context, s *shop, stdout io.Writer) {
	for seed := cfg.seed; ctx.Err() == nil; seed++ {
		cfg.scenario.run(ctx, cfg.way, seed, stage{
			url:   s.url,
			inUse: s.way.inUse,
			tell:  func(moment) {},
			enter: func(p phase) {
				s.deploy(p.hold)
				fmt.Fprintf(stdout, "%s  %s\n", time.Now().Format(time.TimeOnly), p.name)
			},
		})
	}
}

func (p *ops) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := p.http.Shutdown(ctx)
	if served := <-p.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// untilEOF ends the context it returns when r ends: whoever started this process holds the other end, and cannot leave it
// behind by dying.
func untilEOF(ctx context.Context, r io.Reader) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, r)
		cancel()
	}()
	return ctx, cancel
}
