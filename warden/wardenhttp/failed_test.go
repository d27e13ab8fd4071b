// SPDX-License-Identifier: Apache-2.0

// A request that ends with an error of the service is counted (Q23, H31), here and where it is sent from.

package wardenhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// Of any handlers, those fail that answer with 500 or more, or do not return, while their clients wait.
func TestPropertyFailed(t *testing.T) {
	ends := map[string]func(){
		"returns": func() {}, "panics": func() { panic("on purpose") }, "aborts": func() { panic(http.ErrAbortHandler) },
	}
	rapid.Check(t, func(rt *rapid.T) {
		w := must(warden.New(warden.Config{}))(t)
		want := uint64(0)
		for range rapid.IntRange(1, 20).Draw(rt, "requests") {
			status := rapid.SampledFrom([]int{0, 200, 204, 302, 400, 404, 429, 499, 500, 501, 503, 504, 599}).Draw(rt, "status")
			way := rapid.SampledFrom([]string{"returns", "panics", "aborts"}).Draw(rt, "way")
			leaves := rapid.Bool().Draw(rt, "leaves")
			buffered := rapid.Bool().Draw(rt, "buffered")
			ctx, cancel := context.WithCancel(t.Context())
			func() {
				defer func() { _ = recover() }()
				must(wardenhttp.New(w, wardenhttp.Config{Buffered: buffered}))(t).Handler(
					http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						if leaves {
							cancel()
						}
						if status > 0 {
							w.WriteHeader(status)
						}
						ends[way]()
					})).ServeHTTP(httptest.NewRecorder(), newRequest().WithContext(ctx))
			}()
			cancel()
			if !leaves && (status >= 500 || way != "returns") {
				want++
			}
		}
		for w.Limiter().Stats().Running > 0 { // buffered, the client has its answer and the handler goes on
			runtime.Gosched()
		}
		if s := w.Limiter().Stats(); s.Failed != want {
			rt.Fatalf("H31: %d failed, want %d: %+v", s.Failed, want, s.Tally)
		}
	})
}

// A request that is sent fails with its answer, or for want of one, unless its sender gives it up.
func TestSentRequestsFail(t *testing.T) {
	broken := errors.New("connection refused")
	for name, c := range map[string]struct {
		status int
		err    error
		gone   bool
		failed uint64
	}{
		"answered": {status: 200}, "not found": {status: 404}, "too many": {status: 429},
		"an error": {status: 500, failed: 1}, "unavailable": {status: 503, failed: 1},
		"no answer": {err: broken, failed: 1}, "given up": {err: broken, gone: true},
	} {
		w := must(warden.New(warden.Config{}))(t)
		ctx, cancel := context.WithCancel(t.Context())
		rt := must(wardenhttp.NewTransport(w, wardenhttp.TransportConfig{Base: roundTrip(
			func(*http.Request) (*http.Response, error) {
				if c.gone {
					cancel()
				}
				if c.err != nil {
					return nil, c.err
				}
				return respond(c.status, newPayload("x")), nil
			})}))(t)
		if resp, err := rt.RoundTrip(newRequest().WithContext(ctx)); err == nil {
			resp.Body.Close()
		}
		cancel()
		if s := w.Limiter().Stats(); s.Failed != c.failed || s.Executed != 1 {
			t.Errorf("H31: %s: %d failed, want %d: %+v", name, s.Failed, c.failed, s.Tally)
		}
	}
}

// What a client does wrong is no failure of the service: a body that is none, or one that stops.
func TestBrokenBodiesAreNoFailures(t *testing.T) {
	g := newGuard(t, 4, 0)
	m := newMiddleware(t, g, wardenhttp.Config{Grace: 50 * time.Millisecond})
	s := startServer(t, m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.WriteHeader(http.StatusBadGateway) // as a proxy does
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
	})), false)
	for name, c := range map[string]struct {
		body   string
		failed uint64
	}{
		"no chunk":        {"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n", 0},
		"stops":           {"Content-Length: 100\r\n\r\nabc", 0},
		"whole, an error": {"Content-Length: 3\r\n\r\nabc", 1},
	} {
		before := g.Limiter().Stats().Failed
		conn := must((&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String()))(t)
		fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\n"+c.body)
		status(t, conn)
		conn.Close()
		g.wantEmpty(t)
		if got := g.Limiter().Stats().Failed - before; got != c.failed {
			t.Errorf("H31: %s: %d failed, want %d", name, got, c.failed)
		}
	}
}

// Whoever sends on a body that breaks learns nothing about whom it was sent to: no breaker opens.
func TestASentBodyThatBreaks(t *testing.T) {
	upstream := startServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }), false)
	set := must(bulkhead.New(bulkhead.Config{Total: 1, Compartments: []bulkhead.CompartmentConfig{{Name: "a", Guaranteed: 1}}}))(t)
	rt := must(wardenhttp.NewTransport(nil, wardenhttp.TransportConfig{
		Base: upstream.Client().Transport, Compartment: func(*http.Request) *bulkhead.Compartment { return set.Compartment("a") },
	}))(t)
	for _, body := range []io.Reader{iotest.ErrReader(errors.New("broken")), strings.NewReader("whole")} {
		req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, upstream.URL, body))(t)
		if resp, err := rt.RoundTrip(req); err == nil {
			resp.Body.Close()
		}
	}
	if c := set.Compartment("a").Snapshot(); c.Outcomes["failed"] != 0 || c.Outcomes["succeeded"] != 1 || c.InFlight != 0 {
		t.Errorf("H31: %v, want one that succeeded and none that failed", c.Outcomes)
	}
}
