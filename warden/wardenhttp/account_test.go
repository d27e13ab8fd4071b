// SPDX-License-Identifier: Apache-2.0

// Whose time counts as the service's, and who allocates: handlers and base transports without a network.

package wardenhttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// An auditor sees what a warden measures.
type auditor struct{ counted, abandoned uint64 }

func (a *auditor) Step(s monitor.Sample) decision.ControlDecision {
	a.counted += s.Service.Count
	a.abandoned += s.Service.Abandoned
	return decision.ControlDecision{Seq: 1, TargetConcurrency: 1}
}

// counted is how many executions the warden was told of by use, which is to leave nothing in flight.
func counted(t *testing.T, use func(w *warden.Warden)) uint64 {
	t.Helper()
	a := new(auditor)
	synctest.Test(t, func(t *testing.T) {
		w := must(warden.New(warden.Config{Controller: a, Limiter: limiter.Config{Initial: a.Step(monitor.Sample{})}}))(t)
		use(w)
		if s := w.Limiter().Stats(); s.Running != 0 || s.Executed != 1 {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Second)
		w.SampleIfDue()
	})
	return a.counted
}

func TestDependencysTime(t *testing.T) {
	failed := errors.New("on purpose")
	read := func(resp *http.Response) { _, _ = io.ReadAll(resp.Body) }
	for name, c := range map[string]struct {
		base func(cancel func()) (*http.Response, error)
		end  func(*http.Response)
		want uint64
	}{
		"read": {func(func()) (*http.Response, error) { return respond(200, newPayload("x")), nil }, read, 1},
		"closed": {func(func()) (*http.Response, error) {
			return respond(200, newPayload("x")), nil
		}, func(r *http.Response) { r.Body.Close() }, 1},
		"error":    {func(func()) (*http.Response, error) { return nil, failed }, nil, 1},
		"canceled": {func(cancel func()) (*http.Response, error) { cancel(); return nil, context.Canceled }, nil, 0},
		"canceled, a body": {func(cancel func()) (*http.Response, error) {
			cancel()
			return respond(200, newPayload("x")), nil

		}, func(r *http.Response) { r.Body.Close() }, 0},
		"canceled, read": {
			func(cancel func()) (*http.Response, error) { cancel(); return respond(200, newPayload("x")), nil }, read, 0,
		},
		"upgraded": {func(func()) (*http.Response, error) {
			return respond(101, upgradedBody()), nil
		}, func(r *http.Response) { r.Body.Close() }, 0},
		"no upgrade": {func(func()) (*http.Response, error) {
			return respond(200, upgradedBody()), nil
		}, func(r *http.Response) { r.Body.Close() }, 1},
		"without a body": {func(func()) (*http.Response, error) { return respond(204, http.NoBody), nil }, nil, 1},
		"canceled, bodiless": {
			func(cancel func()) (*http.Response, error) { cancel(); return respond(204, http.NoBody), nil }, nil, 0,
		},
	} {
		got := counted(t, func(w *warden.Warden) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			rt := must(wardenhttp.NewTransport(
				w,
				wardenhttp.TransportConfig{Base: roundTrip(func(*http.Request) (*http.Response, error) {
					return c.base(cancel)
				})},
			))(t)
			resp, _ := rt.RoundTrip(newRequest().WithContext(ctx))
			if c.end != nil {
				c.end(resp)
			}
		})
		if got != c.want {
			t.Errorf("H9: %s: %d counted, want %d", name, got, c.want)
		}
	}
}

func respond(status int, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: status, Body: body}
}

// upgradedBody is one that can be written, which is a two-way stream after 101 only.
func upgradedBody() io.ReadCloser {
	return struct {
		io.ReadCloser
		io.Writer
	}{newPayload(""), io.Discard}
}

// A panic in what the config brings is the request's own, and holds nothing.
func TestPanicsOfTheConfigHoldNothing(t *testing.T) {
	for name, cfg := range map[string]wardenhttp.Config{
		"Task":    {Task: func(*http.Request) warden.Task { panic("on purpose") }},
		"Exempt":  {Exempt: func(*http.Request) bool { panic("on purpose") }},
		"Trusted": {Trusted: func(*http.Request) bool { panic("on purpose") }},
	} {
		g := newGuard(t, 1, 0)
		h := newMiddleware(t, g, cfg).Handler(nil)
		r := newRequest()
		r.Header.Set("Warden-Priority", "1")
		func() {
			defer func() {
				if recover() != "on purpose" {
					t.Errorf("H1: %s: no panic", name)
				}
			}()
			h.ServeHTTP(httptest.NewRecorder(), r)
		}()
		g.wantInFlight(t, name, 0)
	}
	g := newGuard(t, 1, 0)
	rt := must(wardenhttp.NewTransport(g.Warden, wardenhttp.TransportConfig{Task: func(*http.Request) warden.Task {
		panic("on purpose")
	}}))(t)
	sent := newPayload("x")
	finish(func() { _, _ = rt.RoundTrip(httptest.NewRequest(http.MethodPost, "/", sent)) })
	if g.wantInFlight(t, "Transport", 0); sent.closes.Load() != 1 {
		t.Errorf("H1: the request's body was closed %d times", sent.closes.Load())
	}
}

// A handler that is nil serves nothing: neither what is registered in http.DefaultServeMux, nor a panic. The log says so once.
func TestNilHandlerAnswers500(t *testing.T) {
	for name, next := range map[string]http.Handler{
		"nil": nil, "a nil function": http.HandlerFunc(nil), "a nil pointer": (*http.ServeMux)(nil),
	} {
		for _, cfg := range []wardenhttp.Config{{}, {Buffered: true}, {Exempt: func(*http.Request) bool { return true }}} {
			var logged bytes.Buffer
			server := &http.Server{ErrorLog: log.New(&logged, "", 0)} //nolint:gosec // it serves nothing
			g := newGuard(t, 1, 0)
			h := newMiddleware(t, g, cfg).Handler(next)
			for range 2 {
				rec := httptest.NewRecorder()
				r := newRequest()
				h.ServeHTTP(rec, r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, server)))
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

func TestInvalidConfig(t *testing.T) {
	w := newGuard(t, 1, 0).Warden
	for _, c := range []struct {
		field string
		w     *warden.Warden
		cfg   wardenhttp.Config
	}{
		{"wardenhttp.New: the warden", nil, wardenhttp.Config{}},
		{"wardenhttp.New: the warden", &warden.Warden{}, wardenhttp.Config{}},
		{"wardenhttp.Config.Timeout", w, wardenhttp.Config{Timeout: -1}},
		{"wardenhttp.Config.Timeout", w, wardenhttp.Config{Timeout: 500}}, // nanoseconds: every request would be late
		{"wardenhttp.Config.Grace", w, wardenhttp.Config{Grace: 10}},
		{"wardenhttp.Config.RetryAfter", w, wardenhttp.Config{RetryAfter: 30}},
		{"wardenhttp.Config.RetryAfter", w, wardenhttp.Config{RetryAfter: -1}},
		{"wardenhttp.Config.BufferPerAnswer", w, wardenhttp.Config{Buffered: true, BufferPerAnswer: -1}},
		{"wardenhttp.Config.BufferPerAnswer", w, wardenhttp.Config{BufferPerAnswer: 1}},
		{"wardenhttp.Config.BufferTotal", w, wardenhttp.Config{Buffered: true, BufferTotal: -1}},
		{"wardenhttp.Config.BufferTotal", w, wardenhttp.Config{Buffered: true, BufferTotal: 1 << 10}},
		{"wardenhttp.Config.BufferTotal", w, wardenhttp.Config{Buffered: true, BufferPerAnswer: 128 << 20}},
		{"wardenhttp.Config.BufferTotal", w, wardenhttp.Config{BufferTotal: 1}},
		{"wardenhttp.Config.RetryAfter", w, wardenhttp.Config{RetryAfter: time.Hour + 1}},
	} {
		m, err := wardenhttp.New(c.w, c.cfg)
		var invalid *warden.InvalidError
		if m != nil || !errors.As(err, &invalid) || !errors.Is(err, warden.ErrInvalid) || invalid.Field != c.field ||
			invalid.Allowed == "" {
			t.Errorf("%s: %v", c.field, err)
		}
	}
}

func TestNilReadinessAnswers500(t *testing.T) {
	var none *wardenhttp.Readiness
	none.Drain()
	rec := httptest.NewRecorder()
	if none.ServeHTTP(rec, newRequest()); rec.Code != http.StatusInternalServerError {
		t.Errorf("answered %d", rec.Code)
	}
}
