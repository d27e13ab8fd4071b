// What the tests share: gates that count what they announce, and servers and clients over loopback.

package admissionhttp_test

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

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/admission/admissionhttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience ends a test that hangs; no test depends on its value.
const patience = 10 * time.Second

// A tally counts what a gate announces, apart from the gate's own books.
type tally struct {
	mu                           sync.Mutex // guards all below
	admitted, rejected, released int
	changed                      chan struct{} // closed by the next event
}

func (c *tally) Observe(e admission.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e.Kind {
	case admission.Admitted:
		c.admitted++
	case admission.Rejected:
		c.rejected++
	case admission.Released:
		c.released++
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *tally) counts() (admitted, rejected, released int, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.admitted, c.rejected, c.released, c.changed
}

type gate struct {
	*admission.Gate
	tally
}

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

func newGate(t fataler, name string, limit int) *gate {
	t.Helper()
	g := new(gate)
	g.changed = make(chan struct{})
	var err error
	if g.Gate, err = admission.New(admission.Config{Name: name, Limit: limit, Observer: &g.tally}); err != nil {
		t.Fatalf("New: %v", err)
	}
	return g
}

func (g *gate) wantInFlight(t fataler, when string, want int) {
	t.Helper()
	if got := g.InFlight(); got != want {
		t.Errorf("%s: %d in flight, want %d", when, got, want)
	}
}

// wantEmpty waits until every admission has been released, and checks that none was twice and nothing is in flight.
func (g *gate) wantEmpty(t fataler) {
	t.Helper()
	hangs := time.After(patience)
	for {
		admitted, _, released, changed := g.counts()
		if released == admitted {
			g.wantInFlight(t, "in the end", 0)
			return
		}
		if released > admitted {
			t.Fatalf("%d admitted, %d released", admitted, released)
		}
		select {
		case <-changed:
		case <-hangs:
			t.Fatalf("%d admitted, %d released, %d in flight", admitted, released, g.InFlight())
		}
	}
}

func newHandler(t fataler, g *gate, next http.HandlerFunc) http.Handler {
	t.Helper()
	h, err := admissionhttp.NewHandler(next, admissionhttp.HandlerConfig{Gate: g.Gate})
	if err != nil {
		t.Fatalf("NewHandler: %v", err)
	}
	return h
}

func newTransport(t fataler, g *gate, base http.RoundTripper) *admissionhttp.Transport {
	t.Helper()
	rt, err := admissionhttp.NewTransport(admissionhttp.TransportConfig{Gate: g.Gate, Base: base})
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

// A fakeWriter is a ResponseWriter that can be hijacked and nothing else, in the way that the test says.
type fakeWriter struct {
	http.ResponseWriter
	hijack func() (net.Conn, *bufio.ReadWriter, error)
}

func (w *fakeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.hijack() }

// A fakeConn is a connection that can only be closed.
type fakeConn struct {
	net.Conn
	close func() error
}

func (c *fakeConn) Close() error { return c.close() }

// wrapped has only Unwrap, as the writers of many logging middlewares.
type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

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

// startCounting is startServer for HTTP/1 with connections that count what is copied by their own methods.
func startCounting(t *testing.T, h http.Handler) (*httptest.Server, *countingListener) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	l := &countingListener{Listener: s.Listener}
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return s, l
}

// countingListener counts what its connections copy: in by ReadFrom, out by WriteTo.
type countingListener struct {
	net.Listener
	in, out atomic.Int64
}

func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &countingConn{c.(*net.TCPConn), l}, nil
}

type countingConn struct {
	*net.TCPConn
	l *countingListener
}

func (c *countingConn) ReadFrom(r io.Reader) (int64, error) {
	n, err := c.TCPConn.ReadFrom(r)
	c.l.in.Add(n)
	return n, err
}

func (c *countingConn) WriteTo(w io.Writer) (int64, error) {
	n, err := c.TCPConn.WriteTo(w)
	c.l.out.Add(n)
	return n, err
}
