// The server's side: who reaches the handler, and how many at once.

package wardenhttp_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stopbank/stopbank/warden/limiter"
)

func TestH1_RejectedRequestNeverReachesTheHandler(t *testing.T) {
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
		if _, rejected, _, _ := g.counts(); rejected != 3 {
			t.Errorf("%d rejected, want 3", rejected)
		}
	})
}

func TestH1_ClosedLimiterRejectsAndLetsTheRestEnd(t *testing.T) {
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
		t.Errorf("%d rejected as closed, want 2", got)
	}
}

// What an end is, package inflight knows and tests; here it reaches the warden, on a real connection.
func TestH2_HijackedConnectionKeepsItsSlot(t *testing.T) {
	g := newGuard(t, 1, 0)
	conns := make(chan net.Conn, 1)
	s := startServer(t, newHandler(t, g, func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
		}
		conns <- c
	}), false)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if resp, err := post(t, s); err == nil {
			resp.Body.Close()
		}
	}()
	c := <-conns
	wantStatus(t, s, http.StatusServiceUnavailable)
	g.wantInFlight(t, "with the connection open", 1)
	_ = c.Close()
	<-gone
	g.wantEmpty(t)
}

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
		ok, rejected := int(answered[http.StatusOK].Load()), int(answered[http.StatusServiceUnavailable].Load())
		if ok != started || int(calls.Load()) != started || rejected != turned || ok+rejected != clients*requests {
			t.Errorf("%d ok, %d calls, %d started; %d answered 503, %d rejected; of %d", ok, calls.Load(), started, rejected, turned, clients*requests)
		}
	})
}
