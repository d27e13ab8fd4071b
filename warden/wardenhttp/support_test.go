// SPDX-License-Identifier: Apache-2.0

// What the tests share: wardens that count what they announce, and servers and clients over loopback or in memory.

package wardenhttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
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
	g.Warden = must(warden.New(warden.Config{
		Controller: constant{d}, Interval: 10 * time.Second,
		Limiter: limiter.Config{Name: "secret", Initial: d, MaxQueue: max(queue, 1), Observer: &g.tally},
	}))(t)
	return g
}

// newWarden is one that decides this, whatever it sees.
func newWarden(t fataler, d decision.ControlDecision) *warden.Warden {
	t.Helper()
	return must(warden.New(warden.Config{Controller: constant{d}, Interval: 10 * time.Second, Limiter: limiter.Config{Initial: d}}))(t)
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
	eventually(t, fmt.Sprintf("%d in the queue", want), func() bool { return g.Limiter().Stats().Queued == want })
}

// eventually waits for what nothing tells of, such as a queue that grows.
func eventually(t fataler, what string, is func() bool) {
	t.Helper()
	for hangs := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(hangs) {
			t.Fatal(what + ": did not happen")
		}
	}
}

func newMiddleware(t fataler, g *guard, cfg wardenhttp.Config) *wardenhttp.Middleware {
	t.Helper()
	return must(wardenhttp.New(g.Warden, cfg))(t)
}

// handle is a handler behind a middleware.
func handle(t fataler, w *warden.Warden, cfg wardenhttp.Config, next http.HandlerFunc) http.Handler {
	t.Helper()
	return must(wardenhttp.New(w, cfg))(t).Handler(next)
}

func (g *guard) handle(t fataler, cfg wardenhttp.Config, next http.HandlerFunc) http.Handler {
	t.Helper()
	return handle(t, g.Warden, cfg, next)
}

func newHandler(t fataler, g *guard, next http.HandlerFunc) http.Handler {
	t.Helper()
	return g.handle(t, wardenhttp.Config{}, next)
}

func newTransport(t fataler, g *guard, base http.RoundTripper) http.RoundTripper {
	t.Helper()
	return must(wardenhttp.NewTransport(g.Warden, wardenhttp.TransportConfig{Base: base}))(t)
}

// compartment is the one of a set that cfg describes; it has one slot unless cfg says otherwise.
func compartment(t fataler, cfg bulkhead.CompartmentConfig) *bulkhead.Compartment {
	t.Helper()
	cfg.Name, cfg.Guaranteed = "shop", max(1, cfg.Guaranteed)
	set := must(bulkhead.New(bulkhead.Config{Total: cfg.Guaranteed, Compartments: []bulkhead.CompartmentConfig{cfg}}))(t)
	return set.Compartment("shop")
}

// in is Config.Compartment for requests that all have the same one.
func in(c *bulkhead.Compartment) func(*http.Request) *bulkhead.Compartment {
	return func(*http.Request) *bulkhead.Compartment { return c }
}

// sentIn is a transport whose requests are sent in a compartment.
func sentIn(t fataler, c *bulkhead.Compartment, base http.RoundTripper) http.RoundTripper {
	t.Helper()
	return must(wardenhttp.NewTransport(nil, wardenhttp.TransportConfig{Base: base, Compartment: in(c)}))(t)
}

// always is Config.Trusted or Exempt where all requests are of one kind.
func always(is bool) func(*http.Request) bool { return func(*http.Request) bool { return is } }

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

// bubble runs a test in virtual time.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
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

// pipes is a listener in memory, so that HTTP runs in virtual time. Its connections have deadlines, and no buffers.
type pipes struct {
	dialed chan net.Conn
	closed chan struct{}
	close  func()
}

func newPipes() *pipes {
	p := &pipes{dialed: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return p
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.dialed <- there:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.dialed:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.close(); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// inMemory serves in a bubble until the test ends, and returns a transport whose hosts are all this server.
func inMemory(t *testing.T, s *http.Server) *http.Transport {
	t.Helper()
	p := newPipes()
	served := make(chan error, 1)
	go func() { served <- s.Serve(p) }()
	base := &http.Transport{DialContext: p.dial, MaxIdleConnsPerHost: 1000}
	t.Cleanup(func() {
		base.CloseIdleConnections()
		_ = s.Close() // the listener has no error
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		time.Sleep(time.Hour) // net/http lingers, and so may the client: no goroutine may be left in the bubble
	})
	return base
}

// pipeTo is a connection to a server in a bubble.
func pipeTo(t *testing.T, s *http.Server) net.Conn {
	t.Helper()
	c := must(inMemory(t, s).DialContext(context.Background(), "", ""))(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// connTo is a connection to a handler in a bubble.
func connTo(t *testing.T, h http.Handler) net.Conn {
	t.Helper()
	return pipeTo(t, &http.Server{Handler: h})
}

// say writes to c without waiting for whether somebody reads.
func say(c net.Conn, text string) { go func() { _, _ = io.WriteString(c, text) }() }

func status(t *testing.T, c net.Conn) int {
	t.Helper()
	resp := must(http.ReadResponse(bufio.NewReader(c), nil))(t)
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp.StatusCode
}

// raw sends head over a connection of its own and returns it, with what can be read from it.
func raw(t *testing.T, s *httptest.Server, head string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c := must(net.Dial("tcp", s.Listener.Addr().String()))(t)
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	must(io.WriteString(c, head))(t)
	return c, bufio.NewReader(c)
}

// proxyTo is a reverse proxy that logs nothing.
func proxyTo(t *testing.T, upstream string, rt http.RoundTripper) *httputil.ReverseProxy {
	t.Helper()
	to := must(url.Parse(upstream))(t)
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to); p.Out.Trailer = p.In.Trailer }, Transport: rt, ErrorLog: log.New(io.Discard, "", 0),
	}
}

// send sends a request with these headers, by name and value.
func send(t *testing.T, c *http.Client, method, url string, body io.Reader, header ...string) *http.Response {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), method, url, body))(t)
	set(req.Header, header)
	return must(c.Do(req))(t)
}

// get is the whole answer of s to a request with these headers.
func get(t *testing.T, s *httptest.Server, header ...string) (*http.Response, string) {
	t.Helper()
	resp := send(t, s.Client(), http.MethodGet, s.URL, http.NoBody, header...)
	defer resp.Body.Close()
	return resp, string(must(io.ReadAll(resp.Body))(t))
}

func set(h http.Header, pairs []string) {
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
}

// post sends a request that no transport sends twice.
func post(t *testing.T, s *httptest.Server) (*http.Response, error) {
	t.Helper()
	return s.Client().Do(must(http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, http.NoBody))(t))
}

// wantStatus sends a request and reads all of the response.
func wantStatus(t *testing.T, s *httptest.Server, want int) *http.Response {
	t.Helper()
	resp := must(post(t, s))(t)
	defer resp.Body.Close()
	must(io.Copy(io.Discard, resp.Body))(t)
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

// newRequest is one that a handler gets, with these headers, by name and value.
func newRequest(header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	set(r.Header, header)
	return r
}

// by is r as a server has it.
func by(s *http.Server, r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, s))
}

// recorded is what h answers.
func recorded(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

// respond is what a base transport answers, with these headers.
func respond(status int, body io.ReadCloser, header ...string) *http.Response {
	resp := &http.Response{StatusCode: status, Body: body, Header: http.Header{}}
	set(resp.Header, header)
	return resp
}

// must is for what cannot fail here: x := must(f())(t).
func must[T any](v T, err error) func(fataler) T {
	return func(t fataler) T {
		t.Helper()
		noError(t, err)
		return v
	}
}

func noError(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// number is 1 for what is so.
func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// fataler is a test, or one of rapid's.
type fataler interface {
	Helper()
	Fatal(args ...any)
}
