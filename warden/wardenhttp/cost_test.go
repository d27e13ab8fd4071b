// SPDX-License-Identifier: Apache-2.0

// What a slot costs, and what a rejection does: allocations, and time beside a rejection without a reason, with net/http and
// without.

package wardenhttp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func TestSlotAllocatesLittle(t *testing.T) {
	w := must(warden.New(warden.Config{Interval: 10 * time.Second}))(t)
	full := newWarden(t, decision.ControlDecision{Seq: 1207, TargetConcurrency: 1, ShedProbability: 1, Expected: time.Millisecond})
	must(full.TryAcquire(warden.Task{}))(t)
	c := compartment(t, bulkhead.CompartmentConfig{})
	rec, req, impatient := httptest.NewRecorder(), newRequest(), newRequest("Warden-Timeout", "60000")
	upload := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("a body"))
	long := newRequest("X-Long", strings.Repeat("x", 500), "Warden-Priority", "12")
	bare := &discarding{header: http.Header{}}
	for name, c := range map[string]struct {
		of   *warden.Warden // nil: a compartment
		w    http.ResponseWriter
		r    *http.Request
		cfg  wardenhttp.Config
		most float64
	}{
		"nothing to hijack":             {w, rec, req, wardenhttp.Config{}, 5},
		"a Hijacker":                    {w, fakeWriter{rec, rec}, req, wardenhttp.Config{}, 6},
		"a deadline":                    {w, rec, req, wardenhttp.Config{Timeout: time.Minute}, 9},
		"a stranger's deadline":         {w, rec, impatient, wardenhttp.Config{}, 10},
		"a body":                        {w, rec, upload, wardenhttp.Config{}, 8},
		"a body and a deadline":         {w, rec, upload, wardenhttp.Config{Timeout: time.Minute}, 12},
		"a compartment":                 {nil, rec, req, wardenhttp.Config{Compartment: in(c)}, 6},
		"a Hijacker in a compartment":   {nil, fakeWriter{rec, rec}, req, wardenhttp.Config{Compartment: in(c)}, 7},
		"a rejection":                   {full, bare, req, wardenhttp.Config{}, 4},
		"a rejection of a long request": {full, bare, long, wardenhttp.Config{}, 4},
	} {
		m := must(wardenhttp.New(c.of, c.cfg))(t)
		buf := make([]byte, 512)
		next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadFull(r.Body, buf) })
		h := m.Handler(next)
		if got := testing.AllocsPerRun(100, func() { h.ServeHTTP(c.w, c.r) }); got > c.most {
			t.Errorf("H10: %s: %v allocations, want at most %v", name, got, c.most)
		}
		if got := testing.AllocsPerRun(100, func() { m.Serve(c.w, c.r, next) }); got > c.most {
			t.Errorf("H10: Serve, %s: %v allocations, want at most %v", name, got, c.most)
		}
	}
}

// The values of all headers lie side by side, and nobody must notice.
func TestHeadersAreApart(t *testing.T) {
	w := &discarding{header: http.Header{}}
	wardenhttp.WriteError(w, nil, rejected(decision.PressureHigh))
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

// discarding is a ResponseWriter that keeps nothing.
type discarding struct {
	header http.Header
	status int
}

func (d *discarding) Header() http.Header         { return d.header }
func (d *discarding) WriteHeader(status int)      { d.status = status }
func (d *discarding) Write(p []byte) (int, error) { return len(p), nil }
