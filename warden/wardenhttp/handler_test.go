// SPDX-License-Identifier: Apache-2.0

// The server's side: who reaches the handler, and how many at once.

package wardenhttp_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func TestRejectedRequestNeverReachesTheHandler(t *testing.T) {
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
				t.Errorf("H1: Retry-After: %q, want 1 or 2", got)
			}
			if got := resp.Header.Get("Content-Type"); got != "application/problem+json" {
				t.Errorf("H1: Content-Type: %q", got)
			}
		}
		if got := calls.Load(); got != 1 {
			t.Errorf("H1: the handler was called %d times, want 1", got)
		}
		close(finish)
		if err := <-first; err != nil {
			t.Error(err)
		}
		g.wantEmpty(t)
		wantStatus(t, s, http.StatusAccepted)
		if _, rejected, _, _ := g.counts(); rejected != 3 {
			t.Errorf("H1: %d rejected, want 3", rejected)
		}
	})
}

// Each request brings its own next. The middleware says whose the answer is.
func TestServeSaysWhoAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuard(t, 1, 0)
		m := newMiddleware(t, g, wardenhttp.Config{
			Timeout: time.Second, Exempt: func(r *http.Request) bool { return r.URL.Path == "/exempt" },
		})
		fails := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		answers := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }
		for _, c := range []struct {
			name, path string
			full       bool
			next       http.HandlerFunc
			answered   bool
			status     int
		}{
			{"next answers", "/", false, answers, false, http.StatusTeapot},
			{"next says nothing", "/", false, func(http.ResponseWriter, *http.Request) {}, false, http.StatusOK},
			{"no slot", "/", true, answers, true, http.StatusServiceUnavailable},
			{"time is up", "/", false, fails, true, http.StatusGatewayTimeout},
			{"time is up, next answers", "/", false, func(w http.ResponseWriter, r *http.Request) {
				fails(w, r)
				answers(w, r)
			}, false, http.StatusTeapot},
			{"exempt", "/exempt", true, answers, false, http.StatusTeapot},
		} {
			var full warden.Permit
			if c.full {
				full = must(g.TryAcquire(warden.Task{}))(t)
			}
			rec := httptest.NewRecorder()
			answered := m.Serve(rec, httptest.NewRequest(http.MethodGet, c.path, http.NoBody), c.next)
			full.Release()
			if answered != c.answered || rec.Code != c.status {
				t.Errorf("%s: answered %t with %d, want %t with %d", c.name, answered, rec.Code, c.answered, c.status)
			}
		}
	})
}

// What an end is, package inflight knows and tests; here it reaches the warden, on a real connection.
func TestHijackedConnectionKeepsItsSlot(t *testing.T) {
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
