// SPDX-License-Identifier: Apache-2.0

// What the tests share: gates that count how requests end, and servers and clients over loopback.

package inflight_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/warden/internal/inflight"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A gate admits so many requests, and keeps account of how they ended.
type gate struct {
	limit int

	mu                        sync.Mutex // guards all below
	admitted, rejected, twice int
	outcomes                  []inflight.Outcome // of those that ended, in this order
	changed                   chan struct{}      // closed by the next end
}

func newGate(limit int) *gate { return &gate{limit: limit, changed: make(chan struct{})} }

// errFull is what a client is told when its gate is full; a server answers 503.
var errFull = errors.New("full")

func (g *gate) acquire() (permit, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.admitted-len(g.outcomes) >= g.limit {
		g.rejected++
		return permit{}, errFull
	}
	g.admitted++
	return permit{g, new(bool)}, nil
}

// A permit notices when it is ended twice.
type permit struct {
	gate  *gate
	ended *bool
}

func (p permit) End(outcome inflight.Outcome) {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	if *p.ended {
		p.gate.twice++
		return
	}
	*p.ended = true
	p.gate.outcomes = append(p.gate.outcomes, outcome)
	close(p.gate.changed)
	p.gate.changed = make(chan struct{})
}

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

func (g *gate) inFlight() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.admitted - len(g.outcomes)
}

func (g *gate) wantInFlight(t fataler, when string, want int) {
	t.Helper()
	if got := g.inFlight(); got != want {
		t.Errorf("%s: %d in flight, want %d", when, got, want)
	}
}

// wantEmpty waits until nothing is in flight, and checks that nothing ended twice.
func (g *gate) wantEmpty(t fataler) {
	t.Helper()
	hangs := time.After(patience)
	for {
		g.mu.Lock()
		left, twice, changed := g.admitted-len(g.outcomes), g.twice, g.changed
		g.mu.Unlock()
		if twice > 0 {
			t.Fatalf("H1: %d permits ended twice", twice)
		}
		if left == 0 {
			return
		}
		select {
		case <-changed:
		case <-hangs:
			t.Fatalf("H1: %d in flight", left)
		}
	}
}

// newHandler calls next for what g admits.
func newHandler(g *gate, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := g.acquire()
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		inflight.Serve(p, next, w, r)
	})
}

// newTransport sends through base what g admits.
func newTransport(g *gate, base http.RoundTripper) http.RoundTripper {
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		p, err := g.acquire()
		if err != nil {
			return nil, err
		}
		return inflight.RoundTrip(p, base, req)
	})
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

func newPayload(s string) io.ReadCloser { return io.NopCloser(strings.NewReader(s)) }

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
