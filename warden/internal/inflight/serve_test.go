// SPDX-License-Identifier: Apache-2.0

// The server's side: a request is in flight until its handler is done, however that comes.

package inflight_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/internal/inflight"
)

func TestHandlerReleasesHoweverItEnds(t *testing.T) {
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
				g := newGate(1)
				s := serve(newHandler(g, func(w http.ResponseWriter, r *http.Request) {
					g.wantInFlight(t, "in the handler", 1)
					end(w, r)
				}))
				for range 2 { // the second request needs the slot of the first
					if resp, err := post(t, s); err == nil {
						if resp.StatusCode == http.StatusServiceUnavailable {
							t.Error("H1: rejected")
						}
						resp.Body.Close()
					}
					g.wantEmpty(t)
				}
				if g.admitted != 2 || g.rejected != 0 {
					t.Errorf("H1: %d admitted, %d rejected, want 2 and 0", g.admitted, g.rejected)
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

func TestPanicKeepsItsStack(t *testing.T) {
	g := newGate(1)
	h := newHandler(g, explode)
	defer func() {
		if v := recover(); v != "on purpose" {
			t.Errorf("H1: recovered %v", v)
		}
		if stack := string(debug.Stack()); !strings.Contains(stack, "inflight_test.explode(") {
			t.Errorf("H1: the stack does not show who panicked:\n%s", stack)
		}
		g.wantEmpty(t)
	}()
	h.ServeHTTP(httptest.NewRecorder(), newRequest())
}

func explode(http.ResponseWriter, *http.Request) { panic("on purpose") }

// A writer whose Unwrap panics does so after admission.
func TestHostileWriterReleases(t *testing.T) {
	g := newGate(1)
	h := newHandler(g, func(http.ResponseWriter, *http.Request) {})
	defer func() {
		if recover() == nil {
			t.Error("H1: no panic")
		}
		g.wantEmpty(t)
	}()
	h.ServeHTTP(hostileWriter{httptest.NewRecorder()}, newRequest())
}

type hostileWriter struct{ http.ResponseWriter }

func (hostileWriter) Unwrap() http.ResponseWriter { panic("on purpose") }

// Many clients at once, in front of few permits: handlers are never more than these, and each request has one or none.
func TestRaceEachPermitIsForOneRequest(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		const limit, clients, requests = 3, 12, 20
		g := newGate(limit)
		var now, calls atomic.Int64
		s := serve(newHandler(g, func(http.ResponseWriter, *http.Request) {
			calls.Add(1)
			if n := now.Add(1); n > limit {
				t.Errorf("H1: %d handlers at once", n)
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
		ok, rejected := int(answered[http.StatusOK].Load()), int(answered[http.StatusServiceUnavailable].Load())
		if ok != g.admitted || int(calls.Load()) != g.admitted || rejected != g.rejected || ok+rejected != clients*requests {
			t.Errorf("H1: %d ok, %d calls, %d admitted; %d answered 503, %d rejected; of %d",
				ok, calls.Load(), g.admitted, rejected, g.rejected, clients*requests)
		}
	})
}

// What is nil is for the handler, or for net/http, to complain about.
func TestNilRequestAndWriterRelease(t *testing.T) {
	g := newGate(1)
	h := newHandler(g, func(w http.ResponseWriter, r *http.Request) {
		if w != nil || r != nil {
			t.Errorf("H1: called with %v and %v", w, r)
		}
	})
	h.ServeHTTP(nil, nil)
	g.wantEmpty(t)
	p, _ := g.acquire()
	finish(func() { inflight.Serve(p, nil, httptest.NewRecorder(), newRequest()) })
	g.wantEmpty(t)
}

// http.TimeoutHandler answers and leaves its handler at work. Outside, that is a request that goes on; inside, it is the
// handler, and what it has left running is no part of the request.
func TestTimeoutHandler(t *testing.T) {
	for inside, want := range map[bool]int{false: 1, true: 0} {
		g := newGate(1)
		finish, done := make(chan struct{}), make(chan struct{})
		slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			<-finish
			close(done)
		})
		var h http.Handler
		if inside {
			h = newHandler(g, http.TimeoutHandler(slow, time.Millisecond, "").ServeHTTP)
		} else {
			h = http.TimeoutHandler(newHandler(g, slow), time.Millisecond, "")
		}
		wantStatus(t, startServer(t, h, false), http.StatusServiceUnavailable)
		if inside {
			g.wantEmpty(t) // net/http has answered, and the handler is about to return
		}
		g.wantInFlight(t, "after the answer", want)
		close(finish)
		await(t, "the end of the work", done)
		g.wantEmpty(t)
	}
}

func TestServeAllocatesLittle(t *testing.T) {
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	rec, req := httptest.NewRecorder(), newRequest()
	for name, c := range map[string]struct {
		w    http.ResponseWriter
		most float64
	}{
		"nothing to hijack": {rec, 1},
		"a Hijacker":        {hijackFlusher{&fakeWriter{ResponseWriter: rec}, rec}, 2},
	} {
		if got := testing.AllocsPerRun(100, func() { inflight.Serve(wide{}, next, c.w, req) }); got > c.most {
			t.Errorf("H10: %s: %v allocations, want at most %v", name, got, c.most)
		}
	}
}

// wide is a permit of several words, which fits into no interface.
type wide struct {
	context.Context
	_ [6]uintptr
}

func (wide) End(inflight.Outcome) {}
