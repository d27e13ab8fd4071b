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
}

// Handler returns a handler that calls next for requests that get a slot, as [wardenhttp.Middleware.Handler] does.
func (s *Service) Handler(next http.Handler) http.Handler {
	if s == nil {
		s = new(Service)
	}
	return s.middleware.Handler(next)
}

// Run listens on server.Addr, with TLS if server has a TLSConfig with certificates, and on Config.OperatorsAddr, and serves
// until ctx ends or a listener fails. Then it
//
//  1. fails readiness, and goes on serving for Config.Spread;
//  2. closes the listener of server and waits for running and queued requests, for Config.ShutdownTimeout at most, and cuts off
//     what is left;
//  3. ends the warden's Run, closes its limiter, stops serving operators, and has the log written.
//
// It blocks until all of that is done, and returns nil if every request was answered. A listener that fails is not waited
// for: step 1 takes no time. The error is that of a listener, that of the shutdown, or an [*warden.InvalidError], and then
// nothing was served: ctx or server is nil, s did not come from New, or Run was called before.
//
// Timeouts of server that are 0 stay 0: set all four.
func (s *Service) Run(ctx context.Context, server *http.Server) error {
	switch {
	case s == nil || s.middleware == nil:
		return invalid("Service", "nil or zero", "a service made by New")
	case ctx == nil:
		return invalid("ctx", "nil", "a context")
	case server == nil:
		return invalid("server", "nil", "a server")
	case s.ran.Swap(true):
		return invalid("Run", "called before", "once")
	}
	listener, err := net.Listen("tcp", server.Addr)
	if err != nil {
		return err
	}
	operators := &http.Server{
		Handler: s.Operators, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 20 * time.Second,
		IdleTimeout: time.Minute,
	}
	operators.RegisterOnShutdown(s.Console.Close) // event streams do not end by themselves
	lines := []any{"addr", listener.Addr().String()}
	ended := make(chan error, 2) // of the servers
	if s.operatorsAddr != "" {
		l, err := net.Listen("tcp", s.operatorsAddr)
		if err != nil {
			return errors.Join(fmt.Errorf("service: Config.OperatorsAddr: %w", err), listener.Close())
		}
		lines = append(lines, "operators", l.Addr().String())
		go func() { ended <- operators.Serve(l) }()
	}
	go func() {
		if server.TLSConfig != nil {
			ended <- server.ServeTLS(listener, "", "")
			return
		}
		ended <- server.Serve(listener)
	}()
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	sampling := make(chan struct{})
	go func() {
		defer close(sampling)
		_ = s.Warden.Run(background) // it fails only if another Run is active
	}()
	s.logger.Info("stopbank: serving", lines...)

	spread := s.spread
	select {
	case <-ctx.Done():
	case err = <-ended:
		spread = 0
	}
	s.Ready.Drain()
	s.logger.Info("stopbank: draining", "spread", spread)
	if spread > 0 {
		select {
		case <-time.After(spread):
		case err = <-ended:
		}
	}
	within, cancel := context.WithTimeout(background, s.shutdownTimeout)
	defer cancel()
	if down := server.Shutdown(within); down != nil {
		err = errors.Join(err, down, server.Close())
	}

	if errors.Is(err, http.ErrServerClosed) { // the program has shut it down itself
		err = nil
	}
	stop()
	<-sampling
	s.Warden.Limiter().Close()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if operators.Shutdown(last) != nil {
		_ = operators.Close() // a scrape or a page that does not end: no request of a client
	}
	_ = s.log.Flush(last) // a handler of logs that hangs loses lines
	return err
}
