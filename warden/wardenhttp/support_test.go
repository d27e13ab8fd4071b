// SPDX-License-Identifier: Apache-2.0

// What the tests share: wardens that count what they announce, and servers and clients over loopback.

package wardenhttp_test

import (
	"bufio"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience ends a test that hangs; no test depends on its value.
const patience = time.Minute

// A tally counts what a limiter announces, apart from the limiter's own books.
type tally struct {
	mu                          sync.Mutex // guards all below
	started, rejected, executed int
	tasks                       []warden.Task // that were started or rejected
	changed                     chan struct{} // closed by the next event
}

func (c *tally) Observe(e limiter.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Outcome {
	case decision.Started:
		c.started++
	case decision.Executed:
		c.executed++
	default:
		c.rejected++
	}
	if e.Outcome != decision.Executed {
		c.tasks = append(c.tasks, e.Task)
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *tally) counts() (started, rejected, executed int, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.started, c.rejected, c.executed, c.changed
}

// A guard is a warden whose target does not move.
type guard struct {
	*warden.Warden
	tally
}

// newGuard has this many slots; so many may wait, and none if that is 0.
func newGuard(t testing.TB, slots, queue int) *guard {
	t.Helper()
	d := decision.ControlDecision{Seq: 7, TargetConcurrency: slots}
	if queue == 0 {
		d.ShedProbability = 1 // a warden always has a queue: what would wait is shed
	}
	g := new(guard)
	g.changed = make(chan struct{})
	var err error
	g.Warden, err = warden.New(warden.Config{
		Controller: constant{d}, Interval: 10 * time.Second,
		Limiter: limiter.Config{Name: "secret", Initial: d, MaxQueue: max(queue, 1), Observer: &g.tally},
	})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return g
}

type constant struct{ is decision.ControlDecision }

func (c constant) Step(monitor.Sample) decision.ControlDecision { return c.is }

func (g *guard) wantInFlight(t *testing.T, when string, want int) {
	t.Helper()
	if got := g.Limiter().Stats().Running; got != want {
		t.Errorf("%s: %d in flight, want %d", when, got, want)
	}
}

// wantEmpty waits until everything that was started has ended and nothing is in flight, and checks that nothing ended twice.
// Requests may still come.
func (g *guard) wantEmpty(t *testing.T) {
	t.Helper()
	hangs := time.After(patience)
	for {
		started, _, executed, changed := g.counts()
		if executed == started && g.Limiter().Stats().Running == 0 {
			return
		}
		if executed > started {
			t.Fatalf("%d started, %d executed", started, executed)
		}
		select {
		case <-changed:
		case <-time.After(time.Millisecond): // what has its slot and was not told yet
		case <-hangs:
			t.Fatalf("%d started, %d executed, %+v", started, executed, g.Limiter().Stats())
		}
	}
}

// wantQueued waits until this many wait.
func (g *guard) wantQueued(t *testing.T, want int) {
	t.Helper()
	for hangs := time.Now().Add(patience); g.Limiter().Stats().Queued != want; {
		if time.Now().After(hangs) {
			t.Fatalf("%+v, want %d queued", g.Limiter().Stats(), want)
		}
		time.Sleep(time.Millisecond) // a queue says nothing when it grows
	}
}

func newMiddleware(t testing.TB, g *guard, cfg wardenhttp.Config) *wardenhttp.Middleware {
	t.Helper()
	m, err := wardenhttp.New(g.Warden, cfg)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return m
}

func newHandler(t testing.TB, g *guard, next http.HandlerFunc) http.Handler {
	t.Helper()
	return newMiddleware(t, g, wardenhttp.Config{}).Handler(next)
}

func newTransport(t *testing.T, g *guard, base http.RoundTripper) http.RoundTripper {
	t.Helper()
	rt, err := wardenhttp.NewTransport(g.Warden, wardenhttp.TransportConfig{Base: base})
	if err != nil {
		t.Fatalf("NewTransport: %v", err)
	}
	return rt
}

// protocols runs a test over both protocols, each on a real server.
func protocols(t *testing.T, test func(t *testing.T, serve func(http.Handler) *httptest.Server)) {
	for _, http2 := range []bool{false, true} {
		name := "HTTP/1.1"
		if http2 {
			name = "HTTP/2"
		}
		t.Run(name, func(t *testing.T) {
			test(t, func(h http.Handler) *httptest.Server { return startServer(t, h, http2) })
		})
	}
}

// startServer serves until the test ends. Panics of handlers are meant here, and not logged.
func startServer(t *testing.T, h http.Handler, http2 bool) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if http2 {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// post sends a request that no transport sends twice.
func post(t *testing.T, s *httptest.Server) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return s.Client().Do(req)
}

// wantStatus sends a request and reads all of the response.
func wantStatus(t *testing.T, s *httptest.Server, want int) *http.Response {
	t.Helper()
	resp, err := post(t, s)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != want {
		t.Fatalf("status %d, want %d", resp.StatusCode, want)
	}
	return resp
}

// await waits for an event.
func await(t *testing.T, what string, event <-chan struct{}) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(patience):
		t.Fatalf("%s: did not happen", what)
	}
}

// A fakeWriter is a ResponseWriter that can be hijacked and flushed.
type fakeWriter struct {
	http.ResponseWriter
	http.Flusher
}

func (fakeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) { return fakeConn{}, nil, nil }

// A fakeConn is a connection that can only be closed.
type fakeConn struct{ net.Conn }

func (fakeConn) Close() error { return nil }

// roundTrip is a base transport.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A payload is a body that tells whether it was closed.
type payload struct {
	io.Reader
	closes atomic.Int32
}

func newPayload(s string) *payload { return &payload{Reader: strings.NewReader(s)} }

func (b *payload) Close() error {
	b.closes.Add(1)
	return nil
}

// finish runs f to its end, which may be a panic or runtime.Goexit.
func finish(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		f()
	}()
	<-done
}

func newRequest() *http.Request { return httptest.NewRequest(http.MethodGet, "/", http.NoBody) }
