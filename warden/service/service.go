// SPDX-License-Identifier: Apache-2.0

// The service: its parts, and the order in which they start and stop.

package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/console"
	"github.com/stopbank/stopbank/warden/wardenhttp"
	"github.com/stopbank/stopbank/warden/wardenslog"
)

// Service is an HTTP service with overload protection. Its fields are the parts: read them, do not replace them. It must come
// from [New]; its methods are safe for concurrent use.
type Service struct {
	// Warden runs the requests, or sends its decisions to Set.
	Warden *warden.Warden
	// Set has the compartments; nil without any.
	Set *bulkhead.Set
	// Ready answers a readiness probe. Mount it outside [Service.Handler].
	Ready *wardenhttp.Readiness
	// Console is the operators' page. It is at /console/ of Operators.
	Console *console.Console
	// Operators is what Run serves on Config.OperatorsAddr. Add to it what else operators need: metrics, pprof.
	Operators *http.ServeMux

	middleware      *wardenhttp.Middleware
	log             *wardenslog.Logger
	logger          *slog.Logger
	operatorsAddr   string
	spread          time.Duration
	shutdownTimeout time.Duration
	ran             atomic.Bool
	operators       *http.Server
	stop            func()     // of the warden's Run; nil: not started
	ended           chan error // of the servers
}

// Handler returns a handler that calls next for requests that get a slot, as [wardenhttp.Middleware.Handler] does.
func (s *Service) Handler(next http.Handler) http.Handler {
	if s == nil {
		s = new(Service)
	}
	return s.middleware.Handler(next)
}

// Start begins to measure, and to serve Config.OperatorsAddr, for a program that has a server of its own:
//
//	err := s.Start()              // first
//	server.Handler = s.Handler(mux)
//	…                             // the program serves, until it is to end
//	s.Drain()                     // readiness fails; serve on for as long as balancers need to see it
//	err = server.Shutdown(ctx)
//	err = s.Stop(ctx)             // last
//
// The error is that of the listener, or an [*warden.InvalidError] if s did not come from New, or was started before. Start does not
// block.
func (s *Service) Start() error {
	where, err := s.start()
	if err == nil {
		s.logger.Info("stopbank: serving", where...)
	}
	return err
}

// start is Start without its line in the log, which tells where operators are served.
func (s *Service) start() (where []any, err error) {
	switch {
	case s == nil || s.middleware == nil:
		return nil, invalid("Service", "nil or zero", "a service made by New")
	case s.ran.Swap(true):
		return nil, invalid("Service", "started before", "one that was not")
	}
	s.operators = &http.Server{Handler: s.Operators, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	s.operators.RegisterOnShutdown(s.Console.Close) // event streams do not end by themselves
	s.ended = make(chan error, 2)                   // of the servers
	if s.operatorsAddr != "" {
		l, err := net.Listen("tcp", s.operatorsAddr)
		if err != nil {
			return nil, fmt.Errorf("service: Config.OperatorsAddr: %w", err)
		}
		where = []any{"operators", l.Addr().String()}
		go func() { s.ended <- s.operators.Serve(l) }()
	}
	background, stop := context.WithCancel(context.Background())
	sampling := make(chan struct{})
	go func() {
		defer close(sampling)
		_ = s.Warden.Run(background) // it fails only if another Run is active
	}()
	s.stop = func() { stop(); <-sampling }
	return where, nil
}

// Drain fails readiness. Draining a nil or zero Service, or one that was not started, does nothing else.
func (s *Service) Drain() {
	if s == nil || s.middleware == nil {
		return
	}
	s.Ready.Drain()
	s.logger.Info("stopbank: draining", "spread", s.spread)
}

// Stop ends what Start began, and closes the limiter: call it when the last request has been answered. It waits for the log to be
// written, and for operators' requests, until ctx ends, which cuts them off. The error is that of the operators' listener.
func (s *Service) Stop(ctx context.Context) (err error) {
	switch {
	case ctx == nil:
		return invalid("ctx", "nil", "a context")
	case s == nil || s.stop == nil:
		return nil
	}
	s.stop()
	s.Warden.Limiter().Close()
	if s.operators.Shutdown(ctx) != nil {
		_ = s.operators.Close() // a scrape or a page that does not end: no request of a client
	}
	_ = s.log.Flush(ctx) // a handler of logs that hangs loses lines
	select {
	case err = <-s.ended:
	default:
	}
	return served(err)
}

// served returns the error of a server that has ended, nil if the program has shut it down.
func served(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Run is all of a program's service. It listens on server.Addr, with TLS if server has a TLSConfig with certificates, and on
// Config.OperatorsAddr, and serves until ctx ends or a listener fails. Then it
//
//  1. fails readiness, and goes on serving for Config.Spread;
//  2. closes the listener of server and waits for running and queued requests, for Config.ShutdownTimeout at most, and cuts off
//     what is left;
//  3. does what Stop does.
//
// It blocks until all of that is done, and returns nil if every request was answered. A listener that fails is not waited
// for: step 1 takes no time. The error is that of a listener, that of the shutdown, or an [*warden.InvalidError], and then
// nothing was served: ctx or server is nil, s did not come from New, or was started before.
//
// Timeouts of server that are 0 stay 0: set ReadHeaderTimeout and IdleTimeout.
func (s *Service) Run(ctx context.Context, server *http.Server) error {
	switch {
	case ctx == nil:
		return invalid("ctx", "nil", "a context")
	case server == nil:
		return invalid("server", "nil", "a server")
	}
	listener, err := net.Listen("tcp", server.Addr)
	if err != nil {
		return err
	}
	where, err := s.start()
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	go func() {
		if server.TLSConfig != nil {
			s.ended <- server.ServeTLS(listener, "", "")
			return
		}
		s.ended <- server.Serve(listener)
	}()
	s.logger.Info("stopbank: serving", append([]any{"addr", listener.Addr().String()}, where...)...)

	spread := s.spread
	select {
	case <-ctx.Done():
	case err = <-s.ended:
		spread = 0
	}
	s.Drain()
	if spread > 0 {
		select {
		case <-time.After(spread):
		case err = <-s.ended:
		}
	}
	background := context.WithoutCancel(ctx)
	within, cancel := context.WithTimeout(background, s.shutdownTimeout)
	defer cancel()
	err = served(err)
	if down := server.Shutdown(within); down != nil {
		err = errors.Join(err, down, server.Close())
	}
	last, cancel := context.WithTimeout(background, time.Second)
	defer cancel()
	return errors.Join(err, s.Stop(last))
}
