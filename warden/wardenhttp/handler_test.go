// The server's side: what a handler may do, and when its request ends.

package wardenhttp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stopbank/stopbank/warden/limiter"
)

func TestH1_RefusedRequestNeverReachesTheHandler(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		g := newGuard(t, 1, 0)
		entered, finish := make(chan struct{}), make(chan struct{})
		var calls atomic.Int32
		s := serve(newHandler(t, g, func(w http.ResponseWriter, _ *http.Request) {
			if calls.Add(1) == 1 {
				close(entered)
				<-finish
			}
			w.WriteHeader(http.StatusAccepted)
		}))

		first := make(chan error, 1)
		go func() {
			resp, err := post(t, s)
			if err == nil {
				err = resp.Body.Close()
			}
			first <- err
		}()
		await(t, "the first request", entered)
		for range 3 {
			resp := wantStatus(t, s, http.StatusServiceUnavailable)
			if got := resp.Header.Get("Retry-After"); got != "1" && got != "2" {
				t.Errorf("Retry-After: %q, want 1 or 2", got)
			}
			if got := resp.Header.Get("Content-Type"); got != "application/problem+json" {
				t.Errorf("Content-Type: %q", got)
			}
		}
		if got := calls.Load(); got != 1 {
			t.Errorf("the handler was called %d times, want 1", got)
		}
		close(finish)
		if err := <-first; err != nil {
			t.Error(err)
		}
		g.wantEmpty(t)
		wantStatus(t, s, http.StatusAccepted)
		if _, refused, _, _ := g.counts(); refused != 3 {
			t.Errorf("%d refused, want 3", refused)
		}
	})
}

func TestH1_ClosedLimiterRefusesAndLetsTheRestEnd(t *testing.T) {
	g := newGuard(t, 1, 0)
	entered, finish := make(chan struct{}), make(chan struct{})
	s := startServer(t, newHandler(t, g, func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-finish
	}), false)
	first := make(chan error, 1)
	go func() {
		resp, err := post(t, s)
		if err == nil {
			err = resp.Body.Close()
		}
		first <- err
	}()
	await(t, "the first request", entered)
	g.Limiter().Close()
	wantStatus(t, s, http.StatusServiceUnavailable)
	close(finish)
	if err := <-first; err != nil {
		t.Errorf("the request in flight: %v", err)
	}
	g.wantEmpty(t)
	wantStatus(t, s, http.StatusServiceUnavailable)
	if got := g.Limiter().Stats().RejectedFor(limiter.Closed); got != 2 {
		t.Errorf("%d refused as closed, want 2", got)
	}
}

func TestH1_HandlerReleasesHoweverItEnds(t *testing.T) {
	ends := map[string]func(http.ResponseWriter, *http.Request){
		"returns":          func(http.ResponseWriter, *http.Request) {},
		"panics":           func(http.ResponseWriter, *http.Request) { panic("on purpose") },
		"aborts":           func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"exits":            func(http.ResponseWriter, *http.Request) { runtime.Goexit() },
		"panics half way":  func(w http.ResponseWriter, _ *http.Request) { startBody(w); panic("on purpose") },
		"exits half way":   func(w http.ResponseWriter, _ *http.Request) { startBody(w); runtime.Goexit() },
		"client goes away": func(w http.ResponseWriter, r *http.Request) { startBody(w); <-r.Context().Done() },
	}
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		for name, end := range ends {
			t.Run(name, func(t *testing.T) {
				g := newGuard(t, 1, 0)
				s := serve(newHandler(t, g, func(w http.ResponseWriter, r *http.Request) {
					g.wantInFlight(t, "in the handler", 1)
					end(w, r)
				}))
				for range 2 { // the second request needs the place of the first
					if resp, err := post(t, s); err == nil {
						if resp.StatusCode == http.StatusServiceUnavailable {
							t.Error("refused")
						}
						resp.Body.Close()
					}
					g.wantEmpty(t)
				}
				if started, refused, _, _ := g.counts(); started != 2 || refused != 0 {
					t.Errorf("%d started, %d refused, want 2 and 0", started, refused)
				}
			})
		}
	})
}

// startBody sends the header and a first piece of the body, so that the client has a response.
func startBody(w http.ResponseWriter) {
	_, _ = io.WriteString(w, "begin")
	_ = http.NewResponseController(w).Flush()
}

func TestH1_PanicKeepsItsStack(t *testing.T) {
	g := newGuard(t, 1, 0)
	h := newHandler(t, g, explode)
	defer func() {
		if v := recover(); v != "on purpose" {
			t.Errorf("recovered %v", v)
		}
		if stack := string(debug.Stack()); !strings.Contains(stack, "wardenhttp_test.explode(") {
			t.Errorf("the stack does not show who panicked:\n%s", stack)
		}
		g.wantEmpty(t)
	}()
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
}

func explode(http.ResponseWriter, *http.Request) { panic("on purpose") }

// A writer whose Unwrap panics does so when the request has its place.
func TestH1_HostileWriterReleases(t *testing.T) {
	g := newGuard(t, 1, 0)
	h := newHandler(t, g, func(http.ResponseWriter, *http.Request) {})
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
		g.wantEmpty(t)
	}()
	h.ServeHTTP(hostileWriter{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
}

type hostileWriter struct{ http.ResponseWriter }

func (hostileWriter) Unwrap() http.ResponseWriter { panic("on purpose") }

func TestH3_HandlersNeverExceedTheTarget(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		const limit, clients, requests = 3, 12, 20
		g := newGuard(t, limit, 0)
		var now, calls atomic.Int64
		s := serve(newHandler(t, g, func(http.ResponseWriter, *http.Request) {
			calls.Add(1)
			if n := now.Add(1); n > limit {
				t.Errorf("%d handlers at once", n)
			}
			runtime.Gosched()
			now.Add(-1)
		}))
		var answered [600]atomic.Int64
		done := make(chan error, clients)
		for range clients {
			go func() {
				for range requests {
					resp, err := post(t, s)
					if err != nil {
						done <- err
						return
					}
					answered[resp.StatusCode].Add(1)
					resp.Body.Close()
				}
				done <- nil
			}()
		}
		for range clients {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		g.wantEmpty(t)
		started, turned, _, _ := g.counts()
		ok, refused := int(answered[http.StatusOK].Load()), int(answered[http.StatusServiceUnavailable].Load())
		if ok != started || int(calls.Load()) != started || refused != turned || ok+refused != clients*requests {
			t.Errorf("%d ok, %d calls, %d started; %d answered 503, %d refused; of %d", ok, calls.Load(), started, refused, turned, clients*requests)
		}
	})
}
