// A service of the chain: an HTTP server with a warden, and its client for the next service.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/retry"
	"github.com/stopbank/stopbank/warden/wardenhttp"
	"golang.org/x/sync/errgroup"
)

// A service is one hop of the chain.
type service struct {
	name, url string
	journal   *journal
	front     *warden.Warden
	ready     wardenhttp.Readiness
	server    *http.Server
	measuring context.Context // the lifetime of the wardens
	stop      context.CancelFunc
	running   errgroup.Group
	next      client // nil: the last service
}

// newService makes a service with an adaptive concurrency limit of at most limit; 0: no maximum.
func newService(name string, limit int, j *journal) (s *service, err error) {
	s = &service{name: name, journal: j}
	s.measuring, s.stop = context.WithCancel(context.Background())
	s.front, err = s.warden(name, limit)
	return s, err
}

// serve starts serving on a free loopback port.
func (s *service) serve(cfg wardenhttp.Config, work http.HandlerFunc) error {
	cfg.Answer = func(_ http.ResponseWriter, r *http.Request, err error) bool {
		s.journal.rejected(r, s.name, err) // only log: wardenhttp writes the response
		return false
	}
	mw, err := wardenhttp.New(s.front, cfg)
	if err != nil {
		return err
	}
	guarded := mw.Handler(work)
	mux := http.NewServeMux()
	mux.Handle("GET /readyz", &s.ready) // outside the middleware: cheap, and never rejected
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.journal.arrived(r, s.name) // an access log has rejected requests, too
		guarded.ServeHTTP(w, r)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.url = "http://" + listener.Addr().String()
	s.server = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 20 * time.Second, IdleTimeout: time.Minute,
	}
	s.running.Go(func() error {
		if err := s.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return nil
}

// warden makes a warden that runs until the service shuts down.
func (s *service) warden(name string, limit int) (*warden.Warden, error) {
	cfg := warden.Config{Limiter: limiter.Config{Name: name}}
	cfg.Control.Max = limit
	cfg.Control.Initial = limit
	w, err := warden.New(cfg)
	if err == nil {
		s.running.Go(func() error { return w.Run(s.measuring) })
	}
	return w, err
}

// shutDown has the order of examples/rollout, without its pause for the load balancer.
func (s *service) shutDown() (err error) {
	s.ready.Drain()
	if s.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err = s.server.Shutdown(ctx); err != nil {
			err = errors.Join(err, s.server.Close())
		}
	}
	if s.next != nil {
		s.next.CloseIdleConnections()
	}
	s.stop()
	return errors.Join(err, s.running.Wait())
}

// A client sends requests to the next service: an http.Client or a naive one.
type client interface {
	Do(*http.Request) (*http.Response, error)
	CloseIdleConnections()
}

// resilient makes a client that propagates deadline and priority and retries within a budget. From the outside in: Retry, a
// Transport with a warden for this dependency, and the connections.
func (s *service) resilient(dependency string) (client, error) {
	w, err := s.warden(s.name+" to "+dependency, 0)
	if err != nil {
		return nil, err
	}
	limited, err := wardenhttp.NewTransport(w, wardenhttp.TransportConfig{Base: connections()})
	if err != nil {
		return nil, err
	}
	budget, err := retry.New(retry.Config{})
	if err != nil {
		return nil, err
	}
	retrying, err := wardenhttp.NewRetry(budget, wardenhttp.RetryConfig{Base: limited})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: retrying}, nil
}

// A naive client has its own timeout, makes three attempts whatever the error, and ignores the context of the request.
type naive struct{ *http.Client }

// Do sends the request, up to three times.
func (c naive) Do(req *http.Request) (resp *http.Response, err error) {
	for attempt := range 3 {
		if attempt > 0 {
			if resp != nil {
				_ = resp.Body.Close() // not read
			}
			time.Sleep(20 * time.Millisecond)
		}
		resp, err = c.Client.Do(req.WithContext(context.Background())) // the mistake: no deadline, no priority
		if err == nil && resp.StatusCode < 500 {
			return resp, nil
		}
	}
	return resp, err
}

// forward is a handler that sends the request to the next service, in the context of the request it serves.
func (s *service) forward(next string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.journal.started(r, s.name)
		req, err := http.NewRequestWithContext(r.Context(), r.Method, next+r.URL.Path, http.NoBody)
		if err != nil {
			problem(w, http.StatusInternalServerError, "internal")
			return
		}
		req.Header.Set(idHeader, r.Header.Get(idHeader))
		resp, err := s.next.Do(req)
		if err != nil {
			s.journal.rejected(r, s.name, err)
			writeError(w, err)
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		if err != nil {
			writeError(w, err)
			return
		}
		if resp.StatusCode != http.StatusOK {
			s.journal.forwarded(r, s.name, resp.StatusCode, body)
		}
		// Warden-Rejected is not forwarded: it means that no handler has seen the request, but this one has.
		for _, h := range []string{"Content-Type", "Retry-After"} {
			if v := resp.Header.Get(h); v != "" {
				w.Header().Set(h, v)
			}
		}
		w.WriteHeader(resp.StatusCode)
		_, _ = w.Write(body) // fails only if the client has left
	}
}

// writeError responds to a request whose call of the next service failed.
func writeError(w http.ResponseWriter, err error) {
	switch {
	case wardenhttp.WriteError(w, nil, err): // rejected by the client's warden
	case errors.Is(err, retry.ErrThrottled):
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusServiceUnavailable, "throttled")
	case errors.Is(err, context.DeadlineExceeded):
		problem(w, http.StatusGatewayTimeout, "late")
	case errors.Is(err, context.Canceled):
		problem(w, 499, "canceled") // the client has left
	default: // the error text is internal
		problem(w, http.StatusBadGateway, "unreachable")
	}
}

// problem responds in the format of package wardenhttp (RFC 9457).
func problem(w http.ResponseWriter, status int, reason string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"title": http.StatusText(status), "status": status, "reason": reason})
}
