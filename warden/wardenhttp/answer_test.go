// SPDX-License-Identifier: Apache-2.0

// What a client is told: cause, status, headers, body, and nothing besides.

package wardenhttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/rpcstatus"
	"github.com/stopbank/stopbank/warden/retry"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// tenant is the compartment of a tenant.
func tenant(t testing.TB) *bulkhead.Compartment {
	t.Helper()
	set := must(bulkhead.New(bulkhead.Config{Total: 10, Compartments: []bulkhead.CompartmentConfig{{
		Name: "shared", Guaranteed: 10, MaxQueue: 1, Tenants: bulkhead.TenantsConfig{Max: 1},
	}}}))(t)
	c := set.Compartment("shared").Tenant("acme")
	if _, ok := c.TenantKey(); !ok {
		t.Fatal("no tenant")
	}
	return c
}

func rejected(r decision.RejectionReason) error {
	return &warden.Rejection{Explanation: decision.Explanation{
		Reason: r, Decision: &decision.ControlDecision{Seq: 42, TargetConcurrency: 1717}, InFlight: 1818, QueueLen: 1919,
		Task: warden.Task{Name: "secret"},
	}}
}

// spent is the rejection of a tenant that has all slots that it may have.
func spent(r decision.RejectionReason) error {
	err := rejected(r)
	err.(*warden.Rejection).Bound = bulkhead.BoundTenant
	return err
}

func TestCauseStatusHeadersBody(t *testing.T) {
	const full = "Service Unavailable"
	acme := tenant(t)
	for _, c := range []struct {
		err        error
		of         *bulkhead.Compartment
		status     int
		title      string
		reason     string
		retryAfter string
		decision   bool
	}{
		{rejected(decision.PressureHigh), nil, 503, full, "pressure_high", "1", true},
		{rejected(decision.QueueOverflow), nil, 503, full, "queue_overflow", "1", true},
		{rejected(decision.ProbabilisticShedding), nil, 503, full, "probabilistic_shedding", "1", true},
		{rejected(decision.NoSlot), nil, 503, full, "no_slot", "1", true},
		{rejected(decision.PriorityDrop), nil, 503, full, "priority_drop", "1", true},
		{rejected(decision.DeadlineExceeded), nil, 504, "Gateway Timeout", "deadline_exceeded", "", true},
		{rejected(decision.Canceled), nil, 499, "Client Closed Request", "canceled", "", true},
		{rejected(decision.Closed), nil, 503, full, "closed", "1", true},
		{rejected(decision.QueueOverflow), acme, 429, "Too Many Requests", "queue_overflow", "1", true},
		{spent(decision.PressureHigh), acme, 429, "Too Many Requests", "pressure_high", "1", true},
		{spent(decision.ProbabilisticShedding), nil, 429, "Too Many Requests", "probabilistic_shedding", "1", true},
		{rejected(decision.PressureHigh), acme, 503, full, "pressure_high", "1", true}, // the others' calls are shed too
		{rejected(decision.MaxWaitExceeded), acme, 503, full, "max_wait_exceeded", "1", true},
		{rejected(decision.DeadlineExceeded), acme, 504, "Gateway Timeout", "deadline_exceeded", "", true},
		{rejected(decision.Canceled), acme, 499, "Client Closed Request", "canceled", "", true},
		{rejected(decision.Closed), acme, 503, full, "closed", "1", true},
		{spent(decision.DeadlineExceeded), acme, 504, "Gateway Timeout", "deadline_exceeded", "", true},
		{rejected(bulkhead.TimeoutQueued), acme, 504, "Gateway Timeout", "timeout_queued", "", true},
		{spent(bulkhead.TimeoutQueued), acme, 504, "Gateway Timeout", "timeout_queued", "", true},
		{&bulkhead.TimeoutError{Compartment: "secret", After: time.Second}, nil, 504, "Gateway Timeout", "timeout_running", "", false},
		{rejected(bulkhead.BreakerOpen), nil, 503, full, "breaker_open", "1", true},
		{retry.ErrThrottled, nil, 503, full, "throttled", "1", false},
		{bulkhead.ErrUnknownCompartment, nil, 500, "Internal Server Error", "unknown_compartment", "", false},
		{&decision.ReentryError{Limiter: "secret"}, nil, 500, "Internal Server Error", "reentry", "", false},
		{&decision.InvalidError{Field: "secret"}, nil, 500, "Internal Server Error", "invalid", "", false},
		{&warden.InvalidError{Field: "secret"}, nil, 500, "Internal Server Error", "invalid", "", false},
	} {
		t.Run(fmt.Sprintf("%T %s %d", c.err, c.reason, c.status), func(t *testing.T) {
			m := newMiddleware(t, newGuard(t, 1, 0), wardenhttp.WithRand(wardenhttp.Config{}, func() float64 { return 0 }))
			for _, err := range []error{c.err, fmt.Errorf("around it: %w", c.err)} {
				rec := httptest.NewRecorder()
				if !m.WriteError(rec, c.of, err) {
					t.Fatal("H5: not ours")
				}
				want := fmt.Sprintf(`{"title":%q,"status":%d,"reason":%q`, c.title, c.status, c.reason)
				if c.decision {
					want += `,"decision":42`
				}
				if want += "}\n"; rec.Code != c.status || rec.Body.String() != want {
					t.Errorf("H5: %d %s want %d %s", rec.Code, rec.Body, c.status, want)
				}
				if s, ours := rpcstatus.Of(nil, err); !ours || s.Reason != c.reason {
					t.Errorf("H5: gRPC and Connect call it %q", s.Reason)
				}
				var r *warden.Rejection
				errors.As(err, &r)
				scope := ""
				switch {
				case c.status == 429 || r != nil && r.Bound == bulkhead.BoundTenant:
					scope = "tenant"
				case c.reason == "breaker_open":
					scope = "compartment"
				}
				if h := rec.Header(); h.Get("Content-Type") != "application/problem+json" ||
					h.Get("Retry-After") != c.retryAfter ||
					h.Get("Warden-Scope") != scope || h.Get("X-Content-Type-Options") != "nosniff" ||
					len(h) != 2+len(c.retryAfter)+min(len(scope), 1) {
					t.Errorf("H5: %v", h)
				}
			}
		})
	}
}

func TestWhatIsNotOursIsLeftAlone(t *testing.T) {
	for _, err := range []error{nil, io.EOF, context.Canceled, context.DeadlineExceeded, errors.New("mine")} {
		rec := httptest.NewRecorder()
		if wardenhttp.WriteError(rec, nil, err) || rec.Body.Len() > 0 || len(rec.Header()) > 0 {
			t.Errorf("H5: %v: answered %d", err, rec.Code)
		}
	}
}

// A handler that had begun to describe its content when it was rejected.
func TestHeadersOfOtherContentGo(t *testing.T) {
	rec := httptest.NewRecorder()
	for _, name := range []string{
		"Content-Length", "Content-Encoding", "Etag", "Last-Modified", "Cache-Control", "Content-Type", "X-Trace",
	} {
		rec.Header().Set(name, "7")
	}
	if !wardenhttp.WriteError(rec, nil, rejected(decision.PressureHigh)) {
		t.Fatal("H5: not ours")
	}
	if h := rec.Header(); len(h) != 4 || h.Get("X-Trace") != "7" || h.Get("Content-Type") != "application/problem+json" {
		t.Errorf("H5: %v", h)
	}
}

func TestRetryAfterIsWholeSecondsAndSpread(t *testing.T) {
	for _, c := range []struct {
		known, configured time.Duration
		draw              float64
		want              string
	}{
		{0, 0, 0, "1"}, {0, 0, 0.49, "1"}, {0, 0, 0.5, "2"}, {0, 0, 0.999, "2"},
		{1, 0, 0, "1"}, {time.Second, 0, 0, "1"}, {time.Second + 1, 0, 0, "2"}, {1500 * time.Millisecond, 0, 0.999, "4"},
		{0, time.Millisecond, 0, "1"}, {0, 1500 * time.Millisecond, 0, "2"}, {0, time.Hour, 0, "3600"},
		{0, time.Hour, 0.999999, "7200"},
		{3 * time.Second, time.Hour, 0, "3"}, {time.Minute, 0, 0.999, "120"}, {-time.Second, 0, 0, "1"},
	} {
		m := newMiddleware(t, newGuard(t, 1, 0), wardenhttp.WithRand(wardenhttp.Config{RetryAfter: c.configured},
			func() float64 { return c.draw }))
		rec := httptest.NewRecorder()
		m.WriteError(
			rec, nil, &warden.Rejection{Explanation: decision.Explanation{Reason: decision.PressureHigh}, RetryAfter: c.known},
		)
		if got := rec.Header().Get("Retry-After"); got != c.want {
			t.Errorf("H5: %+v: %q", c, got)
		}
	}
	seen := map[string]bool{}
	for range 200 {
		rec := httptest.NewRecorder()
		wardenhttp.WriteError(rec, nil, &warden.Rejection{Explanation: decision.Explanation{Reason: decision.PressureHigh}})
		seen[rec.Header().Get("Retry-After")] = true
	}
	if len(seen) != 2 || !seen["1"] || !seen["2"] {
		t.Errorf("H5: by default: %v", seen)
	}
}

// The inside is known to those alone who are allowed to.
func TestNothingInternalUnlessVerbose(t *testing.T) {
	for _, verbose := range []bool{false, true} {
		g := newGuard(t, 1, 0)
		busy := must(g.TryAcquire(warden.Task{}))(t)
		s := startServer(t, newMiddleware(t, g, wardenhttp.Config{Verbose: verbose}).Handler(nil), false)
		resp, err := http.Get(s.URL + "/inner/name")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		var members map[string]any
		noError(t, json.Unmarshal(body, &members))
		all := fmt.Sprint(resp.Header, string(body))
		for _, secret := range []string{"secret", "/inner/name", "in flight", "target"} {
			if strings.Contains(all, secret) != verbose {
				t.Errorf("H6: verbose %v: %q in %s", verbose, secret, all)
			}
		}
		detail, _ := members["detail"].(string)
		if members["reason"] != "pressure_high" || members["decision"] != 7.0 || (detail != "") != verbose ||
			len(members) != map[bool]int{false: 5, true: 6}[verbose] {
			t.Errorf("H6: verbose %v: %s", verbose, body)
		}
		busy.Release()
	}
}

func TestHeadHasNoBody(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		s := serve(newHandler(t, newGuard(t, 0, 0), func(http.ResponseWriter, *http.Request) {}))
		resp := send(t, s.Client(), http.MethodHead, s.URL)
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); len(body) > 0 || err != nil || resp.StatusCode != 503 {
			t.Errorf("H5: %s %q %v", resp.Status, body, err)
		}
	})
}

func TestZeroMiddlewareAnswers500(t *testing.T) {
	rec := httptest.NewRecorder()
	new(wardenhttp.Middleware).Handler(nil).ServeHTTP(rec, newRequest())
	if rec.Code != http.StatusInternalServerError || !strings.Contains(rec.Body.String(), `"reason":"invalid"`) {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	if rec = httptest.NewRecorder(); !new(wardenhttp.Middleware).WriteError(rec, nil, rejected(decision.PressureHigh)) ||
		rec.Code != 503 {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}
