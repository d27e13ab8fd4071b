// SPDX-License-Identifier: Apache-2.0

// Bad input: an error names the field, and nil is an error or nothing, never a panic. What no constructor has made: zero_test.go.

package wardenhttp_test

import (
	"bytes"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/retry"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// wantInvalid checks what a constructor says of bad input.
func wantInvalid(t *testing.T, field string, made bool, err error) *warden.InvalidError {
	t.Helper()
	var invalid *warden.InvalidError
	if made || !errors.As(err, &invalid) || !errors.Is(err, warden.ErrInvalid) || invalid.Field != "wardenhttp."+field ||
		invalid.Allowed == "" {
		t.Fatalf("%s: %v", field, err)
	}
	return invalid
}

func TestInvalidConfig(t *testing.T) {
	g := newGuard(t, 1, 0)
	bad := func(field string, w *warden.Warden, cfg wardenhttp.Config) {
		t.Helper()
		m, err := wardenhttp.New(w, cfg)
		wantInvalid(t, field, m != nil, err)
	}
	bad("New: the warden", nil, wardenhttp.Config{})
	bad("New: the warden", &warden.Warden{}, wardenhttp.Config{})
	bad("Config.Timeout", g.Warden, wardenhttp.Config{Timeout: -1})
	bad("Config.Timeout", g.Warden, wardenhttp.Config{Timeout: 500}) // nanoseconds: every request would be late
	bad("Config.Grace", g.Warden, wardenhttp.Config{Grace: 10})
	bad("Config.RetryAfter", g.Warden, wardenhttp.Config{RetryAfter: 30})
	bad("Config.RetryAfter", g.Warden, wardenhttp.Config{RetryAfter: -1})
	bad("Config.RetryAfter", g.Warden, wardenhttp.Config{RetryAfter: time.Hour + 1})
	bad("Config.BufferPerAnswer", g.Warden, wardenhttp.Config{Buffered: true, BufferPerAnswer: -1})
	bad("Config.BufferPerAnswer", g.Warden, wardenhttp.Config{BufferPerAnswer: 1})
	bad("Config.BufferTotal", g.Warden, wardenhttp.Config{Buffered: true, BufferTotal: -1})
	bad("Config.BufferTotal", g.Warden, wardenhttp.Config{Buffered: true, BufferTotal: 1 << 10})
	bad("Config.BufferTotal", g.Warden, wardenhttp.Config{Buffered: true, BufferPerAnswer: 128 << 20})
	bad("Config.BufferTotal", g.Warden, wardenhttp.Config{BufferTotal: 1})
	bad("Config.Instance", g.Warden, wardenhttp.Config{Instance: strings.Repeat("x", 129)})
	bad("Config.Instance", g.Warden, wardenhttp.Config{Instance: "\xff"})
	// A fallback is a compartment's, and a load report is of a warden and for somebody.
	bad("Config.Fallback", g.Warden, wardenhttp.Config{Fallback: func(http.ResponseWriter, *http.Request, error) bool { return false }})
	bad("Config.LoadReports", g.Warden, wardenhttp.Config{LoadReports: true})
	bad("Config.LoadReports", nil, wardenhttp.Config{LoadReports: true, Trusted: always(true), Compartment: in(nil)})
}

func TestInvalidTransportConfig(t *testing.T) {
	bad := func(field string, w *warden.Warden, base http.RoundTripper) *warden.InvalidError {
		t.Helper()
		rt, err := wardenhttp.NewTransport(w, wardenhttp.TransportConfig{Base: base})
		return wantInvalid(t, field, rt != nil, err)
	}
	bad("NewTransport: the warden", &warden.Warden{}, http.DefaultTransport)
	if err := bad("NewTransport: the warden", nil, nil); !strings.HasSuffix(err.Allowed, "nil only with TransportConfig.Compartment") {
		t.Error(err)
	}
	w := newGuard(t, 1, 0).Warden
	if err := bad("TransportConfig.Base", w, (*http.Transport)(nil)); err.Value != "a nil *http.Transport" {
		t.Error(err)
	}
	if err := bad("TransportConfig.Base", w, roundTrip(nil)); err.Value != "a nil wardenhttp_test.roundTrip" {
		t.Error(err)
	}
}

func TestInvalidRetry(t *testing.T) {
	bad := func(field string, c *retry.Caller, cfg wardenhttp.RetryConfig) {
		t.Helper()
		rt, err := wardenhttp.NewRetry(c, cfg)
		wantInvalid(t, field, rt != nil, err)
	}
	c, detached := newCaller(t, retry.Config{}), newTransport(t, newGuard(t, 1, 0), wardenhttp.Detach(nil))
	bad("NewRetry: the caller", nil, wardenhttp.RetryConfig{})
	bad("RetryConfig.AttemptTimeout", c, wardenhttp.RetryConfig{AttemptTimeout: 500})
	bad("RetryConfig.HedgeAfter", c, wardenhttp.RetryConfig{HedgeAfter: 50})
	bad("RetryConfig.HedgeAfter", c, wardenhttp.RetryConfig{HedgeAfter: time.Second, Base: detached})
	bad("RetryConfig.Base", c, wardenhttp.RetryConfig{Base: (*http.Transport)(nil)})
}

func TestPoolWithoutBaseOrBound(t *testing.T) {
	pool, transport := wardenhttp.Pool("payments", nil)
	var invalid *decision.InvalidError
	if _, err := warden.New(warden.Config{Pools: []monitor.Pool{pool}}); transport != nil || !errors.As(err, &invalid) ||
		invalid.Field != "monitor.Pools[0].Stats" {
		t.Errorf("no base: %v, %v", transport, err)
	}
	pool, transport = wardenhttp.Pool("payments", &http.Transport{})
	client := &http.Client{Transport: transport}
	defer client.CloseIdleConnections()
	s := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "body") }), false)
	resp := send(t, client, http.MethodGet, s.URL, http.NoBody)
	if got := pool.Stats(); got != (monitor.PoolStats{}) {
		t.Errorf("no bound: %+v", got)
	}
	resp.Body.Close()
}

func TestNilArguments(t *testing.T) {
	unasked := roundTrip(func(*http.Request) (*http.Response, error) {
		t.Error("sent")
		return nil, errors.New("sent")
	})
	_, pool := wardenhttp.Pool("payments", &http.Transport{})
	for name, rt := range map[string]http.RoundTripper{
		"NewRetry":     newRetry(t, newCaller(t, generous), wardenhttp.RetryConfig{Base: unasked}),
		"NewTransport": newTransport(t, newGuard(t, 1, 0), unasked), "Detach": wardenhttp.Detach(unasked), "Pool": pool,
	} {
		resp, err := rt.RoundTrip(nil)
		if wantInvalid(t, "req", resp != nil, err); t.Failed() {
			t.Error(name)
		}
	}
	// The base says what it thinks of a request without a URL, and closes its body.
	asked := false
	rt := newTransport(t, newGuard(t, 1, 0), roundTrip(func(r *http.Request) (*http.Response, error) {
		asked = r.URL == nil
		return nil, errors.New("no URL")
	}))
	if _, err := rt.RoundTrip(&http.Request{}); err == nil || !asked {
		t.Errorf("no URL: %v, the base was asked: %v", err, asked)
	}
	if wardenhttp.WriteError(nil, nil, rejected(decision.PressureHigh)) {
		t.Error("nobody was told")
	}
	for _, m := range []*wardenhttp.Middleware{nil, {}} {
		rec := recorded(m.Handler(nil), newRequest())
		if rec.Code != http.StatusInternalServerError || !strings.Contains(rec.Body.String(), `"reason":"invalid"`) {
			t.Errorf("no Middleware: %d %s", rec.Code, rec.Body)
		}
		rec = httptest.NewRecorder()
		if !m.WriteError(rec, nil, rejected(decision.PressureHigh)) || rec.Code != http.StatusServiceUnavailable {
			t.Errorf("no Middleware: %d %s", rec.Code, rec.Body)
		}
	}
	var none *wardenhttp.Readiness
	none.Drain()
	if rec := recorded(none, newRequest()); rec.Code != http.StatusInternalServerError {
		t.Errorf("no Readiness: %d", rec.Code)
	}
}

// A handler that is nil serves nothing: neither what is registered in http.DefaultServeMux, nor a panic. The log says so once.
func TestNilHandlerAnswers500(t *testing.T) {
	for name, next := range map[string]http.Handler{
		"nil": nil, "a nil function": http.HandlerFunc(nil), "a nil pointer": (*http.ServeMux)(nil),
	} {
		for _, cfg := range []wardenhttp.Config{{}, {Buffered: true}, {Exempt: always(true)}} {
			var logged bytes.Buffer
			server := &http.Server{ErrorLog: log.New(&logged, "", 0)} //nolint:gosec // it serves nothing
			g := newGuard(t, 1, 0)
			h := newMiddleware(t, g, cfg).Handler(next)
			for range 2 {
				rec := recorded(h, by(server, newRequest()))
				if rec.Code != http.StatusInternalServerError || rec.Header().Get("Warden-Rejected") != "" ||
					!strings.Contains(rec.Body.String(), `"reason":"invalid"`) {
					t.Errorf("%s, %+v: %d %q", name, cfg, rec.Code, rec.Body)
				}
			}
			if n := strings.Count(logged.String(), "allowed: a handler"); n != 1 {
				t.Errorf("%s: logged %d times: %s", name, n, &logged)
			}
			g.wantInFlight(t, name, 0)
		}
	}
}

// A panic in what the config brings is the request's own, and holds nothing.
func TestPanicsOfTheConfigHoldNothing(t *testing.T) {
	for name, cfg := range map[string]wardenhttp.Config{
		"Task":        {Task: func(*http.Request) warden.Task { panic("on purpose") }},
		"Exempt":      {Exempt: func(*http.Request) bool { panic("on purpose") }},
		"Trusted":     {Trusted: func(*http.Request) bool { panic("on purpose") }},
		"Compartment": {Compartment: func(*http.Request) *bulkhead.Compartment { panic("on purpose") }},
	} {
		g := newGuard(t, 1, 0)
		h := newMiddleware(t, g, cfg).Handler(nil)
		func() {
			defer func() {
				if recover() != "on purpose" {
					t.Errorf("H1: %s: no panic", name)
				}
			}()
			h.ServeHTTP(httptest.NewRecorder(), newRequest("Warden-Priority", "1"))
		}()
		g.wantInFlight(t, name, 0)
	}
	g, sent := newGuard(t, 1, 0), newPayload("x")
	rt := must(wardenhttp.NewTransport(g.Warden, wardenhttp.TransportConfig{Task: func(*http.Request) warden.Task {
		panic("on purpose")
	}}))(t)
	finish(func() { _, _ = rt.RoundTrip(httptest.NewRequest(http.MethodPost, "/", sent)) })
	if g.wantInFlight(t, "Transport", 0); sent.closes.Load() != 1 {
		t.Errorf("H1: the request's body was closed %d times", sent.closes.Load())
	}
}
