// One shop, whole: database, way, server and, if the way says so, a warden in front of it all.
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

// The ways that a shop may work.
const (
	shared    = "shared"       // one pool for all
	divided   = "compartments" // a compartment and a pool for each route
	protected = "warden"       // the same, and the whole server under a warden
)

// InvalidError says which flag or variable was wrong, what it was, and what is allowed.
type InvalidError struct{ Name, Value, Allowed string }

// Error names all three.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("%s is %s; allowed: %s", e.Name, e.Value, e.Allowed)
}

// shopConfig says what shop to open.
type shopConfig struct {
	way      string
	scenario scenario
	database string            // URL of PostgreSQL; "": an SQLite file
	address  string            // "": a free port of loopback
	render   time.Duration     // of a processor, for one page of products
	limiter  limiter.Observer  // of the warden; may be nil
	set      bulkhead.Observer // of the compartments; may be nil
}

type shop struct {
	*server

	set    *bulkhead.Set  // nil where there are no compartments
	warden *warden.Warden // nil where there is none
	silent atomic.Bool    // the warden's sampler hangs
	ending []func() error // in the order in which they were begun
}

// openShop opens a shop for customers. close takes it down and leaves nothing: no goroutine, no file, no schema.
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
	s.ending = append(s.ending, st.close)
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
	s.ending = append(s.ending, w.close)
	s.server = newServer(st, w, workOf(cfg.render))
	var inFront func(http.Handler) http.Handler
	if cfg.way == protected {
		if inFront, err = s.protect(cfg); err != nil {
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
	s.serve(l, inFront)
	s.ending = append(s.ending, s.server.close)
	return s, nil
}

// protect makes the warden and returns what puts a handler under it. It is not told how long requests take: that is mostly
// the database's time, and a slow report would lower what it lets in of everything else.
func (s *shop) protect(cfg shopConfig) (func(http.Handler) http.Handler, error) {
	processor, err := monitor.New(monitor.Config{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	s.ending = append(s.ending, func() error { cancel(); running.Wait(); return nil })
	s.warden, err = warden.New(warden.Config{
		Sampler: sampler{processor, &s.silent, ctx.Done()},
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
	running.Go(func() { _ = s.warden.Run(ctx) }) // an error would be ours: a second Run
	return mw.Handler, nil
}

// taskOf says how much a request matters. What is no route of the shop matters least: it is only answered 404.
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
	for _, end := range slices.Backward(s.ending) {
		err = errors.Join(err, end())
	}
	s.ending = nil
	return err
}
