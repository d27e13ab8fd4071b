// A complete shop: database, connection pools, server and, if configured, a warden in front of it.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// The kinds of shop.
const (
	shared    = "shared"       // one pool for all routes
	divided   = "compartments" // a compartment and a pool for each route
	protected = "warden"       // the same, with a warden in front of the server
)

// InvalidError reports an invalid flag or environment variable: its name, its value, and the allowed values.
type InvalidError struct{ Name, Value, Allowed string }

// Error implements error.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("%s is %s; allowed: %s", e.Name, e.Value, e.Allowed)
}

// shopConfig is the configuration of a shop.
type shopConfig struct {
	way      string
	scenario scenario
	database string            // URL of a PostgreSQL server; "": an SQLite file
	address  string            // "": a free loopback port
	render   time.Duration     // CPU time of a products page
	limiter  limiter.Observer  // of the warden's limiter; may be nil
	set      bulkhead.Observer // of the compartments; may be nil
}

type shop struct {
	*server

	set      *bulkhead.Set  // nil without compartments
	warden   *warden.Warden // nil without a warden
	hung     atomic.Bool    // the warden's sampler hangs
	cleanups []func() error // run by close, last one first
}

// openShop opens a shop for customers. close stops it and leaves no goroutine, file or schema behind.
func openShop(ctx context.Context, cfg shopConfig) (_ *shop, err error) {
	s := &shop{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	st, err := openStore(ctx, cfg.database)
	if err != nil {
		return nil, err
	}
	s.cleanups = append(s.cleanups, st.close)
	var w way
	if cfg.way == shared {
		w, err = openShared(ctx, st, cfg.scenario)
	} else {
		var c *compartments
		if c, err = openCompartments(ctx, st, cfg.scenario, cfg.set); err == nil {
			w, s.set = c, c.set
		}
	}
	if err != nil {
		return nil, err
	}
	s.cleanups = append(s.cleanups, w.close)
	s.server = newServer(st, w, workOf(cfg.render))
	var middleware func(http.Handler) http.Handler
	if cfg.way == protected {
		if middleware, err = s.protect(cfg); err != nil {
			return nil, err
		}
	}
	if cfg.address == "" {
		cfg.address = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", cfg.address)
	if err != nil {
		return nil, err
	}
	s.serve(l, middleware)
	s.cleanups = append(s.cleanups, s.server.close)
	return s, nil
}

// protect makes the warden and returns its middleware. The sampler has no execution times on purpose: they are mostly spent in
// the database, and one slow report would lower the concurrency limit of all routes.
func (s *shop) protect(cfg shopConfig) (func(http.Handler) http.Handler, error) {
	processor, err := monitor.New(monitor.Config{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	s.cleanups = append(s.cleanups, func() error { cancel(); running.Wait(); return nil })
	s.warden, err = warden.New(warden.Config{
		Sampler: sampler{processor, &s.hung, ctx.Done()},
		Limiter: limiter.Config{Name: "storefront", Observer: cfg.limiter},
	})
	if err != nil {
		return nil, err
	}
	mw, err := wardenhttp.New(s.warden, wardenhttp.Config{
		Task: taskOf, Timeout: cfg.scenario.patience, Instance: instance(),
		Exempt: func(req *http.Request) bool { return req.URL.Path == ping.path() },
	})
	if err != nil {
		return nil, err
	}
	running.Go(func() { _ = s.warden.Run(ctx) }) // fails only if called twice
	return mw.Handler, nil
}

// taskOf gives a request its route's priority, and Background to unknown paths, which only get a 404.
func taskOf(req *http.Request) warden.Task {
	for r := range routes {
		if req.URL.Path == r.path() {
			return warden.Task{Name: r.String(), Priority: r.priority()}
		}
	}
	return warden.Task{Name: "unknown", Priority: warden.Background}
}

func (s *shop) close() error {
	var err error
	for _, cleanup := range slices.Backward(s.cleanups) {
		err = errors.Join(err, cleanup())
	}
	s.cleanups = nil
	return err
}
