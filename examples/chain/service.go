// A service of the chain: an HTTP server under a warden of its own, which calls the next one, carefully or not.
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

// A service is one hop.
type service struct {
	name, url string
	book      *journal
	front     *warden.Warden
	ready     wardenhttp.Readiness
	server    *http.Server
	measuring context.Context // ends after the last request
	stop      context.CancelFunc
	running   errgroup.Group
	next      caller // nil: it calls nobody
}

// newService makes a service whose warden finds out by itself how many requests may run, at most so many; 0: any number.
func newService(name string, most int, book *journal) (s *service, err error) {
	s = &service{name: name, book: book}
	s.measuring, s.stop = context.WithCancel(context.Background())
	s.front, err = s.warden(name, most)
	return s, err
}

// serve begins to serve, on any port of the loopback interface.
func (s *service) serve(cfg wardenhttp.Config, work http.HandlerFunc) error {
	cfg.Answer = func(_ http.ResponseWriter, r *http.Request, err error) bool {
		s.book.rejected(r, s.name, err) // the log of rejections; the answer is the package's
		return false
	}
	mw, err := wardenhttp.New(s.front, cfg)
	if err != nil {
		return err
	}
	guarded := mw.Handler(work)
	mux := http.NewServeMux()
	mux.Handle("GET /readyz", &s.ready) // not under the middleware: it costs nothing, and must not be rejected
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.book.arrived(r, s.name) // an access log sees what is rejected as well
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

// warden makes a warden that measures for as long as the service lives.
func (s *service) warden(name string, most int) (*warden.Warden, error) {
	cfg := warden.Config{Limiter: limiter.Config{Name: name}}
	cfg.Control.Max = most
	cfg.Control.Initial = most
	w, err := warden.New(cfg)
	if err == nil {
		s.running.Go(func() error { return w.Run(s.measuring) })
	}
	return w, err
}

// leave is the order of examples/rollout, without the pause in which a balancer would hear of it.
func (s *service) leave() (err error) {
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

// A caller sends requests to the next service: an http.Client, or one that forgets.
type caller interface {
	Do(*http.Request) (*http.Response, error)
	CloseIdleConnections()
}

// careful is a client that carries deadline and priority, and retries within a budget. From the outside in: Retry, Transport with a
// warden for this dependency, the connections.
func (s *service) careful(dependency string) (caller, error) {
	w, err := s.warden(s.name+" to "+dependency, 0)
	if err != nil {
		return nil, err
	}
	places, err := wardenhttp.NewTransport(w, wardenhttp.TransportConfig{Base: connections()})
	if err != nil {
		return nil, err
	}
	budget, err := retry.New(retry.Config{})
	if err != nil {
		return nil, err
	}
	again, err := wardenhttp.NewRetry(budget, wardenhttp.RetryConfig{Base: places})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: again}, nil
}

// A forgetful caller is what careful replaces: a timeout of its own, three attempts whatever was rejected, and nothing of what the
// request's context knows.
type forgetful struct{ *http.Client }

// Do sends the request, up to three times.
func (c forgetful) Do(req *http.Request) (resp *http.Response, err error) {
	for attempt := range 3 {
		if attempt > 0 {
			if resp != nil {
				_ = resp.Body.Close() // it is not read
			}
			time.Sleep(20 * time.Millisecond)
		}
		resp, err = c.Client.Do(req.WithContext(context.Background())) // that is the mistake
		if err == nil && resp.StatusCode < 500 {
			return resp, nil
		}
	}
	return resp, err
}

// forward is the work of a service that needs the next one: the same request, in the context of the one that is being served.
func (s *service) forward(next string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.book.working(r, s.name)
		req, err := http.NewRequestWithContext(r.Context(), r.Method, next+r.URL.Path, http.NoBody)
		if err != nil {
			problem(w, http.StatusInternalServerError, "internal")
			return
		}
		req.Header.Set(idHeader, r.Header.Get(idHeader))
		resp, err := s.next.Do(req)
		if err != nil {
			s.book.rejected(r, s.name, err)
			failed(w, err)
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		if err != nil {
			failed(w, err)
			return
		}
		if resp.StatusCode != http.StatusOK {
			s.book.passedOn(r, s.name, resp.StatusCode, body)
		}
		// Warden-Rejected stays here: no handler has seen the request, it says, and this one has.
		for _, h := range []string{"Content-Type", "Retry-After"} {
			if v := resp.Header.Get(h); v != "" {
				w.Header().Set(h, v)
			}
		}
		w.WriteHeader(resp.StatusCode)
		_, _ = w.Write(body) // fails only when the client has left
	}
}

// failed answers a request whose call got no answer.
func failed(w http.ResponseWriter, err error) {
	switch {
	case wardenhttp.WriteError(w, nil, err): // a place for the call was rejected
	case errors.Is(err, retry.ErrThrottled):
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusServiceUnavailable, "throttled")
	case errors.Is(err, context.DeadlineExceeded):
		problem(w, http.StatusGatewayTimeout, "late")
	case errors.Is(err, context.Canceled):
		problem(w, 499, "canceled") // nobody will read it
	default: // what it says is about the inside
		problem(w, http.StatusBadGateway, "unreachable")
	}
}

// problem answers as the package wardenhttp does (RFC 9457).
func problem(w http.ResponseWriter, status int, reason string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"title": http.StatusText(status), "status": status, "reason": reason})
}
