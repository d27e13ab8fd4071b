// SPDX-License-Identifier: Apache-2.0

// What a client is told: cause, status, headers, body, and nothing besides.

package wardenhttp_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
	c := compartment(t, bulkhead.CompartmentConfig{Guaranteed: 10, MaxQueue: 1, Tenants: bulkhead.TenantsConfig{Max: 1}}).Tenant("acme")
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
					h.Get("Warden-Scope") != scope || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" ||
					len(h) != 3+len(c.retryAfter)+min(len(scope), 1) {
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

// Whatever was said of content that is not sent goes, and what outer handlers say of the exchange stays, in each way to an answer
// that is not the handler's.
func TestNoCacheKeepsAnAnswerOfOurs(t *testing.T) {
	stays := http.Header{
		"Access-Control-Allow-Origin": {"https://shop.test"}, "Content-Security-Policy": {"default-src 'none'"}, "X-Trace": {"7"},
	}
	outer := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			maps.Copy(w.Header(), stays)
			w.Header().Set("Vary", "Origin")
			w.Header().Set("Expires", "Thu, 01 Jan 2099 00:00:00 GMT")
			next.ServeHTTP(w, r)
		})
	}
	full, _ := occupied(t, 0)
	fallback := func(w http.ResponseWriter, _ *http.Request, _ error) bool {
		_, err := io.WriteString(w, "bestsellers")
		return err == nil
	}
	spare := bulkhead.CompartmentConfig{MaxFallback: 1}
	rejects := compartment(t, bulkhead.CompartmentConfig{MaxFallback: 1, Breaker: &fuse{open: errors.New("open")}})
	for name, c := range map[string]struct {
		guard  *guard
		cfg    wardenhttp.Config
		status int
	}{
		"rejected":           {full, wardenhttp.Config{}, 503},
		"rejected, answered": {full, wardenhttp.Config{Answer: func(w http.ResponseWriter, _ *http.Request, _ error) bool { w.WriteHeader(503); return true }}, 503},
		"rejected, fallback": {nil, wardenhttp.Config{Compartment: in(rejects), Fallback: fallback}, 200},
		"rejected, no fallback": {nil, wardenhttp.Config{Compartment: in(rejects), Fallback: func(w http.ResponseWriter, _ *http.Request, _ error) bool {
			w.Header().Set("Content-Encoding", "7")
			return false
		}}, 503},
		"late":           {newGuard(t, 1, 0), wardenhttp.Config{Timeout: time.Millisecond}, 504},
		"late, buffered": {newGuard(t, 1, 0), wardenhttp.Config{Timeout: time.Millisecond, Buffered: true}, 504},
		"late, fallback": {nil, wardenhttp.Config{Timeout: time.Millisecond, Compartment: in(compartment(t, spare)), Fallback: fallback}, 200},
		"written":        {newGuard(t, 1, 0), wardenhttp.Config{}, 503},
	} {
		t.Run(name, func(t *testing.T) {
			var w *warden.Warden
			if c.guard != nil {
				w = c.guard.Warden
			}
			m := must(wardenhttp.New(w, c.cfg))(t)
			s := startServer(t, outer(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				for _, of := range []string{
					"Content-Length", "Content-Encoding", "Content-Range", "Content-Digest", "Content-Md5", "Content-Type", "Etag", "Last-Modified",
					"Expires", "Age", "Accept-Ranges", "Pragma", "Surrogate-Control", "Cache-Tag", "X-Accel-Redirect", "X-Sendfile",
					"Cache-Tags", "Cache-Groups", "Edge-Control", "Unencoded-Digest", "Use-As-Dictionary", "X-LiteSpeed-Location",
					"X-Lighttpd-Send-Tempfile", "X-Reproxy-Url",
				} {
					w.Header().Set(of, "7")
					w.Header()[strings.ToLower(of)] = []string{"7"} // it is sent as it is
				}
				w.Header().Set(http.TrailerPrefix+"Etag", "7")
				w.Header().Set("Cache-Control", "public, max-age=60")
				w.Header()["cdn-cache-control"] = []string{"max-age=60"}
				if c.cfg.Timeout > 0 {
					<-r.Context().Done()
				} else {
					m.WriteError(w, nil, rejected(decision.PressureHigh))
				}
			}))), false)
			resp, _ := get(t, s, "Warden-Timeout", "60000", "Warden-Priority", "-1")
			h := resp.Header
			if len(resp.Trailer) > 0 {
				t.Errorf("H6: trailers %v", resp.Trailer)
			}
			for of := range h {
				if strings.Contains(strings.ToLower(of), "cache-control") && of != "Cache-Control" || h.Get(of) == "7" && stays[of] == nil {
					t.Errorf("H6: %s: %v", of, h[of])
				}
			}
			for of, want := range stays {
				if diff := cmp.Diff(want, h[of]); diff != "" {
					t.Errorf("H6: %s (-want +got)\n%s", of, diff)
				}
			}
			if resp.StatusCode != c.status || h.Get("Expires") != "" || h.Get("Cache-Control") != "no-store" ||
				!slices.Equal(h["Vary"], []string{"Origin", "Warden-Timeout, Warden-Priority"}) {
				t.Errorf("H6: %s, %v", resp.Status, h)
			}
		})
	}
}

// A handler around the middleware that compresses whatever is written has said so before, and each answer is what it says; so is one of
// WriteError where a compressor, such as gorilla's, is between the handler and the writer that it knows. What the handler itself has said
// of its content is not believed.
func TestACompressorIsBelieved(t *testing.T) {
	write := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		wardenhttp.WriteError(w, nil, rejected(decision.PressureHigh))
	})
	encoded := func(then http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			then(w, r)
		}
	}
	compress := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			zip := gzip.NewWriter(w)
			defer zip.Close()
			next.ServeHTTP(compressed{w, zip}, r)
		})
	}
	waits := encoded(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	full, _ := occupied(t, 0)
	behind := func(cfg wardenhttp.Config, next http.Handler) http.Handler {
		return newMiddleware(t, newGuard(t, 1, 0), cfg).Handler(next)
	}
	for name, h := range map[string]http.Handler{
		"compressed": compress(write), "behind": behind(wardenhttp.Config{}, compress(write)),
		"in front": compress(behind(wardenhttp.Config{}, write)), "rejected": compress(newHandler(t, full, nil)),
		"late":    compress(behind(wardenhttp.Config{Timeout: time.Millisecond}, waits)),
		"kept":    compress(behind(wardenhttp.Config{Timeout: time.Millisecond, Buffered: true}, waits)),
		"encoded": encoded(write), "encoded, behind": behind(wardenhttp.Config{}, encoded(write)),
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
				resp, body := get(t, serve(h))
				if !json.Valid([]byte(body)) || resp.Header["Content-Encoding"] != nil {
					t.Errorf("H6: %q, %v", body, resp.Header)
				}
			})
		})
	}
}

type compressed struct {
	http.ResponseWriter
	to io.Writer
}

func (c compressed) Write(b []byte) (int, error) { return c.to.Write(b) }

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
		g, _ := occupied(t, 0)
		mux := http.NewServeMux()
		mux.Handle("/inner/name/{id}", http.NotFoundHandler())
		h := newMiddleware(t, g, wardenhttp.Config{Verbose: verbose}).Handler(mux)
		rec := recorded(h, httptest.NewRequest(http.MethodGet, "/inner/name/7", http.NoBody))
		var members map[string]any
		noError(t, json.Unmarshal(rec.Body.Bytes(), &members))
		all := fmt.Sprint(rec.Header(), rec.Body)
		for _, secret := range []string{"secret", "/inner/name/{id}", "in flight", "target"} {
			if strings.Contains(all, secret) != verbose {
				t.Errorf("H6: verbose %v: %q in %s", verbose, secret, all)
			}
		}
		detail, _ := members["detail"].(string)
		if members["reason"] != "pressure_high" || members["decision"] != 7.0 || (detail != "") != verbose ||
			len(members) != map[bool]int{false: 5, true: 6}[verbose] {
			t.Errorf("H6: verbose %v: %s", verbose, rec.Body)
		}
	}
}
