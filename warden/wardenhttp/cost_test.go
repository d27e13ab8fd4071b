// What a slot costs, and what a rejection does: allocations, and time beside a rejection without a reason, with net/http and without.

package wardenhttp_test

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func TestH10_RejectionAllocatesLittle(t *testing.T) {
	h, r, w := rejecting(t), newRequest(), &discarding{header: http.Header{}}
	if got := testing.AllocsPerRun(100, func() { h.ServeHTTP(w, r) }); got > 4 || w.status != http.StatusServiceUnavailable {
		t.Errorf("%v allocations for a %d, want 4 at most for a 503", got, w.status)
	}
}

func TestH10_SlotAllocatesLittle(t *testing.T) {
	w, err := warden.New(warden.Config{Interval: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
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
		m, err := wardenhttp.New(w, c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		if got := testing.AllocsPerRun(100, func() { h.ServeHTTP(c.w, c.r) }); got > c.most {
			t.Errorf("%s: %v allocations, want at most %v", name, got, c.most)
		} else {
			t.Logf("%s: %v allocations", name, got)
		}
	}
}

// The values of all headers lie side by side, and nobody must notice.
func TestH5_HeadersAreApart(t *testing.T) {
	w := &discarding{header: http.Header{}}
	wardenhttp.WriteError(w, nil, &warden.Rejection{Explanation: limiter.Explanation{Reason: limiter.PressureHigh}, RetryAfter: time.Hour})
	for name, values := range w.header {
		if len(values) != 1 {
			t.Errorf("%s: %q", name, values)
		}
	}
	retryAfter := w.header.Get("Retry-After")
	for name := range w.header {
		w.header.Add(name, "more")
	}
	want := http.Header{
		"Content-Type":           {"application/problem+json", "more"},
		"X-Content-Type-Options": {"nosniff", "more"},
		"Retry-After":            {retryAfter, "more"},
	}
	if !reflect.DeepEqual(w.header, want) {
		t.Errorf("%q", w.header)
	}
}

func BenchmarkRejection(b *testing.B) {
	for _, c := range []struct {
		name    string
		handler func() http.Handler
	}{
		{"without a reason", func() http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "overloaded", http.StatusServiceUnavailable)
			})
		}},
		{"wardenhttp", func() http.Handler { return rejecting(b) }},
	} {
		b.Run("handler/"+c.name, func(b *testing.B) {
			h, r := c.handler(), newRequest()
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(&discarding{header: http.Header{}}, r) // a header of its own, as in net/http
			}
		})
		b.Run("loopback/"+c.name, func(b *testing.B) { rejectOverLoopback(b, c.handler()) })
	}
}

// rejecting is a handler under a warden that is full, and sheds whatever would wait.
func rejecting(t testing.TB) http.Handler {
	t.Helper()
	d := decision.ControlDecision{Seq: 1207, TargetConcurrency: 1, ShedProbability: 1, Expected: time.Millisecond}
	w, err := warden.New(warden.Config{Controller: constant{d}, Interval: 10 * time.Second, Limiter: limiter.Config{Initial: d}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.TryAcquire(warden.Task{}); err != nil {
		t.Fatal(err)
	}
	m, err := wardenhttp.New(w, wardenhttp.Config{})
	if err != nil {
		t.Fatal(err)
	}
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

// rejectOverLoopback sends one request after the other on one connection. The client does as little as it can.
func rejectOverLoopback(b *testing.B, h http.Handler) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: patience}
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(l) }()
	defer func() { _ = s.Close(); <-served }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	ask, answer := []byte("GET /inner/name HTTP/1.1\r\nHost: a\r\n\r\n"), bufio.NewReader(c)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(ask); err != nil {
			b.Fatal(err)
		}
		for {
			line, err := answer.ReadSlice('\n')
			if err != nil {
				b.Fatal(err)
			}
			if !bytes.HasSuffix(line, []byte("\r\n")) { // the body is one line, and no header ends like that
				break
			}
		}
	}
}
