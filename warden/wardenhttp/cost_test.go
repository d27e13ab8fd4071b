// SPDX-License-Identifier: Apache-2.0

// What a slot costs, and what a rejection does: allocations, and time beside a rejection without a reason, with net/http and
// without.

package wardenhttp_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func TestSlotAllocatesLittle(t *testing.T) {
	w := must(warden.New(warden.Config{Interval: 10 * time.Second}))(t)
	rec, req, impatient := httptest.NewRecorder(), newRequest(), newRequest()
	impatient.Header.Set("Warden-Timeout", "60000")
	for name, c := range map[string]struct {
		w    http.ResponseWriter
		r    *http.Request
		cfg  wardenhttp.Config
		most float64
	}{
		"nothing to hijack":     {rec, req, wardenhttp.Config{}, 5},
		"a Hijacker":            {fakeWriter{rec, rec}, req, wardenhttp.Config{}, 6},
		"a deadline":            {rec, req, wardenhttp.Config{Timeout: time.Minute}, 9},
		"a stranger's deadline": {rec, impatient, wardenhttp.Config{}, 11},
	} {
		m := must(wardenhttp.New(w, c.cfg))(t)
		h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		if got := testing.AllocsPerRun(100, func() { h.ServeHTTP(c.w, c.r) }); got > c.most {
			t.Errorf("H10: %s: %v allocations, want at most %v", name, got, c.most)
		} else {
			t.Logf("%s: %v allocations", name, got)
		}
		next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		if got := testing.AllocsPerRun(100, func() { m.Serve(c.w, c.r, next) }); got > c.most {
			t.Errorf("H10: Serve, %s: %v allocations, want at most %v", name, got, c.most)
		}
	}
}

// The values of all headers lie side by side, and nobody must notice.
func TestHeadersAreApart(t *testing.T) {
	w := &discarding{header: http.Header{}}
	wardenhttp.WriteError(
		w, nil, &warden.Rejection{Explanation: decision.Explanation{Reason: decision.PressureHigh}, RetryAfter: time.Hour},
	)
	for name, values := range w.header {
		if len(values) != 1 {
			t.Errorf("H5: %s: %q", name, values)
		}
	}
	retryAfter := w.header.Get("Retry-After")
	for name := range w.header {
		w.header.Add(name, "more")
	}
	want := http.Header{
		"Cache-Control":          {"no-store", "more"},
		"Content-Type":           {"application/problem+json", "more"},
		"X-Content-Type-Options": {"nosniff", "more"},
		"Retry-After":            {retryAfter, "more"},
	}
	if diff := cmp.Diff(want, w.header); diff != "" {
		t.Errorf("H5: (-want +got)\n%s", diff)
	}
}

// rejecting is a handler under a warden that is full, and sheds whatever would wait.
func rejecting(t testing.TB) http.Handler {
	t.Helper()
	d := decision.ControlDecision{Seq: 1207, TargetConcurrency: 1, ShedProbability: 1, Expected: time.Millisecond}
	w := must(
		warden.New(warden.Config{Controller: constant{d}, Interval: 10 * time.Second, Limiter: limiter.Config{Initial: d}}),
	)(t)
	must(w.TryAcquire(warden.Task{}))(t)
	m := must(wardenhttp.New(w, wardenhttp.Config{}))(t)
	return m.Handler(nil)
}

// discarding is a ResponseWriter that keeps nothing.
type discarding struct {
	header http.Header
	status int
}

func (d *discarding) Header() http.Header         { return d.header }
func (d *discarding) WriteHeader(status int)      { d.status = status }
func (d *discarding) Write(p []byte) (int, error) { return len(p), nil }
