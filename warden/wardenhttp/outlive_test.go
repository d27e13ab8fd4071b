// SPDX-License-Identifier: Apache-2.0

// What outlives its request, on real connections: nothing of the request is touched any more, since servers, proxies and frameworks
// give its memory to the next one; and nothing is sent for a client that has left.

package wardenhttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/retry"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// A buffer is memory that is reused as soon as its request is over: it has the request's bytes, A, and then another one's, V.
type buffer struct{ reused atomic.Bool }

// borrowed is a body in a buffer.
type borrowed struct {
	from *buffer
	left int
}

func (b *borrowed) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	p = p[:min(len(p), b.left)]
	owner := byte('A')
	if b.from.reused.Load() {
		owner = 'V'
	}
	for i := range p {
		p[i] = owner
	}
	b.left -= len(p)
	return len(p), nil
}

// request returns one whose body, of 8 MB, is in the buffer and in the hands of nobody who closes it.
func (b *buffer) request(ctx context.Context, to string) *http.Request {
	const size = 8 << 20
	req, _ := http.NewRequestWithContext(ctx, http.MethodPut, to, io.NopCloser(&borrowed{b, size}))
	req.ContentLength = size
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(&borrowed{b, size}), nil }
	return req
}

// narrow makes the kernel take little of what an upstream does not read.
type narrow struct{ net.Listener }

func (l narrow) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetReadBuffer(64 << 10)
	}
	return c, err
}

// A Buffered handler that is left behind has trailers of its own, which the server does not fill in while it may be using them; one
// that reads its body has the client's.
func TestTrailersOfABufferedHandler(t *testing.T) {
	for _, reads := range []bool{false, true} {
		answered, seen := make(chan struct{}), make(chan string, 1)
		cfg := wardenhttp.Config{Buffered: true, Timeout: 50 * time.Millisecond}
		s := startServer(t, newGuard(t, 1, 0).handle(t, cfg, func(_ http.ResponseWriter, r *http.Request) {
			if reads {
				_, _ = io.Copy(io.Discard, r.Body)
			}
			for over := false; !over; {
				select {
				case <-answered:
					over = true
				default:
					_ = r.Clone(r.Context()) // the race detector looks
				}
			}
			seen <- r.Trailer.Get("Checksum")
		}), false)
		_, answer := raw(t, s, "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nTrailer: Checksum\r\n\r\n"+
			"5\r\nhello\r\n0\r\nChecksum: 7\r\n\r\n")
		_, _ = io.Copy(io.Discard, answer) // until the server has read what has come of the body, and closes
		close(answered)
		if got, want := <-seen, map[bool]string{true: "7"}[reads]; got != want {
			t.Errorf("H32: the handler, which reads: %t, has the trailer %q, want %q", reads, got, want)
		}
	}
}

// A worker is an upstream that goes on whatever its client does. It reads a body when it is told to.
type worker struct {
	*httptest.Server
	begun                   chan struct{}
	proceed                 func()
	bodies                  chan []byte
	requests, running, most atomic.Int32
}

func newWorker(t *testing.T, http2 bool) *worker {
	t.Helper()
	proceed := make(chan struct{})
	u := &worker{begun: make(chan struct{}, 100), proceed: sync.OnceFunc(func() { close(proceed) }), bodies: make(chan []byte, 100)}
	u.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		u.requests.Add(1)
		now := u.running.Add(1)
		defer u.running.Add(-1)
		for most := u.most.Load(); now > most && !u.most.CompareAndSwap(most, now); most = u.most.Load() {
		}
		u.begun <- struct{}{}
		select {
		case <-proceed:
		case <-t.Context().Done():
		}
		body, _ := io.ReadAll(r.Body)
		u.bodies <- body
	}))
	u.Listener = narrow{u.Listener}
	if u.EnableHTTP2 = http2; http2 {
		u.StartTLS()
	} else {
		u.Start()
	}
	t.Cleanup(u.Close)
	return u
}

// base returns a transport of net/http to u.
func (u *worker) base(t *testing.T) *http.Transport {
	t.Helper()
	base := u.Client().Transport.(*http.Transport).Clone()
	base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, u.Listener.Addr().String())
		if err == nil {
			err = c.(*net.TCPConn).SetWriteBuffer(64 << 10)
		}
		return c, err
	}
	t.Cleanup(base.CloseIdleConnections)
	return base
}

// sender is a transport around another one.
type sender struct {
	name string
	over func(*testing.T, *http.Transport) http.RoundTripper
	// over HTTP/2 too: net/http leaves that to bodies whose Close tells when they are free
	both bool
}

func senders() []sender {
	return []sender{
		{"Detach", func(_ *testing.T, base *http.Transport) http.RoundTripper { return wardenhttp.Detach(base) }, true},
		{"NewTransport over Detach", func(t *testing.T, base *http.Transport) http.RoundTripper {
			return newTransport(t, newGuard(t, 10, 10), wardenhttp.Detach(base))
		}, true},
		{"hedges", func(t *testing.T, base *http.Transport) http.RoundTripper {
			return newRetry(t, newCaller(t, retry.Config{}), wardenhttp.RetryConfig{Base: base, HedgeAfter: time.Millisecond})
		}, true},
		{"NewTransport", func(t *testing.T, base *http.Transport) http.RoundTripper {
			return newTransport(t, newGuard(t, 10, 10), base)
		}, false},
		{"NewRetry", func(t *testing.T, base *http.Transport) http.RoundTripper {
			return newRetry(t, newCaller(t, retry.Config{}), wardenhttp.RetryConfig{Base: base})
		}, false},
		{"Pool", func(_ *testing.T, base *http.Transport) http.RoundTripper {
			base.MaxConnsPerHost = 100
			_, rt := wardenhttp.Pool("upstream", base)
			return rt
		}, false},
	}
}

// each tests each of these senders behind a middleware with one slot.
func each(t *testing.T, test func(t *testing.T, g *guard, u *worker, rt http.RoundTripper)) {
	t.Helper()
	for _, s := range senders() {
		for _, http2 := range []bool{false, true}[:1+map[bool]int{true: 1}[s.both]] {
			t.Run(fmt.Sprintf("%s/HTTP2=%t", s.name, http2), func(t *testing.T) {
				u := newWorker(t, http2)
				test(t, newGuard(t, 1, 10), u, s.over(t, u.base(t)))
			})
		}
	}
}

// ask sends a request to a handler behind g. leave lets the client leave; done tells that the handler has returned.
func ask(t *testing.T, g *guard, handle func(r *http.Request)) (leave func(), done <-chan struct{}) {
	t.Helper()
	over := make(chan struct{})
	s := startServer(t, newHandler(t, g, func(_ http.ResponseWriter, r *http.Request) {
		defer close(over)
		handle(r)
	}), false)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		_ = inquire(ctx, s.Client(), s.URL, http.NoBody)
	}()
	t.Cleanup(func() { cancel(); <-left })
	return cancel, over
}

// take sends req and is done with the answer.
func take(rt http.RoundTripper, req *http.Request) error {
	resp, err := rt.RoundTrip(req)
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	return err
}

// wantOwn checks what u got in all its requests.
func (u *worker) wantOwn(t *testing.T) {
	t.Helper()
	u.proceed()
	for range u.requests.Load() {
		if body := <-u.bodies; bytes.Contains(body, []byte("V")) {
			t.Errorf("H32: of %d bytes in a request, %d are another's", len(body), bytes.Count(body, []byte("V")))
		}
	}
}

// A client leaves while its body is sent, and the body's memory is another request's.
func TestBodyIsNotSentAfterItsRequest(t *testing.T) {
	each(t, func(t *testing.T, g *guard, u *worker, rt http.RoundTripper) {
		leave, done := ask(t, g, func(r *http.Request) {
			b := new(buffer)
			if err := take(rt, b.request(r.Context(), u.URL)); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
			b.reused.Store(true)
		})
		await(t, "upstream", u.begun)
		leave()
		await(t, "the end of the handler", done)
		u.wantOwn(t)
		g.wantEmpty(t)
	})
}

// A transport that reads on when it has answered, or was canceled, as net/http's may over HTTP/2, reads nothing once the answer has
// been read.
func TestBodyIsNotReadAfterItsAnswer(t *testing.T) {
	for _, hedged := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b, asked := new(buffer), new(atomic.Int32)
			base := roundTrip(func(r *http.Request) (*http.Response, error) {
				go func() {
					defer r.Body.Close()
					time.Sleep(time.Minute)
					if n, _ := r.Body.Read(make([]byte, 1)); n > 0 || r.Context().Err() == nil {
						t.Errorf("H32: %d bytes were read after their request; its context: %v", n, r.Context().Err())
					}
				}()
				if asked.Add(1) == 1 && hedged {
					<-r.Context().Done()
					return nil, r.Context().Err()
				}
				return respond(http.StatusOK, newPayload("x")), nil
			})
			rt := wardenhttp.Detach(base)
			if hedged {
				rt = newRetry(t, newCaller(t, retry.Config{}), wardenhttp.RetryConfig{HedgeAfter: time.Second, Base: base})
			}
			recorded(newHandler(t, newGuard(t, 1, 0), func(_ http.ResponseWriter, r *http.Request) {
				if err := take(rt, b.request(r.Context(), "http://upstream")); err != nil {
					t.Error(err)
				}
				b.reused.Store(true)
			}), newRequest())
			time.Sleep(time.Hour)
		})
	}
}

// A GetBody that panics when it is asked for a hedge's body has nobody to tell: there is no hedge.
func TestHedgesBodyPanics(t *testing.T) {
	s := startServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }), false)
	first, write := io.Pipe()
	req := must(http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL, first))(t)
	req.GetBody = func() (io.ReadCloser, error) {
		defer write.Close() // the first attempt ends
		panic("on purpose")
	}
	rt := newRetry(t, newCaller(t, retry.Config{}), wardenhttp.RetryConfig{Base: s.Client().Transport, HedgeAfter: time.Millisecond})
	if err := take(rt, req); err != nil {
		t.Error(err)
	}
}

// A hedge that has lost reads nothing after RoundTrip has returned, however late its transport notices that it has.
func TestLosingHedgeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, asked := new(buffer), new(atomic.Int32)
		rt := newRetry(t, newCaller(t, retry.Config{}), wardenhttp.RetryConfig{
			HedgeAfter: time.Second, Base: roundTrip(func(r *http.Request) (*http.Response, error) {
				defer r.Body.Close()
				if asked.Add(1) == 1 {
					time.Sleep(2 * time.Second)
					return respond(http.StatusOK, newPayload("x")), nil
				}
				<-r.Context().Done()
				time.Sleep(time.Second)
				if b.reused.Load() {
					t.Error("H32: a hedge that has lost reads on")
				}
				return nil, r.Context().Err()
			}),
		})
		if err := take(rt, b.request(t.Context(), "http://upstream")); err != nil || asked.Load() != 2 {
			t.Errorf("%v after %d requests", err, asked.Load())
		}
		b.reused.Store(true)
		time.Sleep(time.Minute)
	})
}

// Trailers that a body fills in arrive, and hooks of a trace are not called for a client that has left.
func TestDetachLendsTrailersAndHooks(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		begun, proceed, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
		u := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(ended)
			body, err := io.ReadAll(r.Body)
			if sum := r.Trailer.Get("Sum"); err != nil || string(body) != "whole" || sum != "5" {
				t.Errorf("H32: body %q, trailer %q, %v", body, sum, err)
			}
			close(begun)
			<-proceed
			w.WriteHeader(http.StatusEarlyHints)
		}))
		rt := wardenhttp.Detach(u.Client().Transport)
		var left, late atomic.Bool
		var told atomic.Int32
		g := newGuard(t, 1, 0)
		leave, done := ask(t, g, func(r *http.Request) {
			trailer := http.Header{"Sum": nil}
			ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
				WroteHeaders: func() { told.Add(1) },
				Got1xxResponse: func(int, textproto.MIMEHeader) error {
					late.Store(left.Load())
					return nil
				},
			})
			body := io.MultiReader(bytes.NewReader([]byte("whole")), readerFunc(func([]byte) (int, error) {
				trailer.Set("Sum", "5")
				return 0, io.EOF
			}))
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, u.URL, body)
			req.Trailer = trailer
			if err := take(rt, req); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
			left.Store(true)
		})
		await(t, "upstream", begun)
		leave()
		await(t, "the end of the handler", done)
		g.wantInFlight(t, "H23: while the upstream works for nobody", 1)
		close(proceed)
		await(t, "the end of the upstream", ended)
		g.wantEmpty(t)
		if late.Load() || told.Load() != 1 {
			t.Errorf("H32: a hook was called after its request: %t; before: %d", late.Load(), told.Load())
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A Buffered handler that is left behind gets no more of the body, which an outer handler decompresses into a buffer of its own,
// and writes to no header that outer handlers read.
func TestBufferedHandlerLeftBehind(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		var over, late atomic.Bool
		headers, done := make(chan http.Header, 1), make(chan struct{})
		cfg := wardenhttp.Config{Buffered: true, Task: dueIn(50 * time.Millisecond)}
		inner := newGuard(t, 1, 0).handle(t, cfg, func(_ http.ResponseWriter, r *http.Request) {
			defer close(done)
			_, err := io.ReadAll(r.Body)
			of := <-headers
			r.Header.Set("Late", "1")
			if _, again := r.Body.Read(make([]byte, 1)); err == nil || again == nil || of.Get("Late") != "" || r.Body.Close() != nil {
				t.Errorf("H32: a body after its request: %v, %v; outer headers %v", err, again, of)
			}
		})
		s := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			from := r.Body
			r.Body = struct {
				io.Reader
				io.Closer
			}{readerFunc(func(p []byte) (int, error) {
				n, err := from.Read(p)
				time.Sleep(20 * time.Millisecond) // it decompresses
				late.Store(over.Load())
				return n, err
			}), closerFunc(func() error {
				late.Store(late.Load() || over.Load())
				return from.Close()
			})}
			inner.ServeHTTP(w, r)
			over.Store(true)
			headers <- r.Header
		}))
		pr, pw := io.Pipe()
		defer pw.Close()
		go func() { _, _ = io.WriteString(pw, "the rest never comes") }()
		resp := send(t, s.Client(), http.MethodPost, s.URL, pr)
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusGatewayTimeout {
			t.Errorf("status %d", resp.StatusCode)
		}
		await(t, "the end of the handler", done)
		if late.Load() {
			t.Error("H32: a handler that was left behind reads another's memory")
		}
	})
}

type closerFunc func() error

func (f closerFunc) Close() error { return f() }

// What has lost its client is not sent, whatever ended its context, and its body is closed.
func TestEndedRequestIsNotSent(t *testing.T) {
	gone := errors.New("gone")
	each(t, func(t *testing.T, g *guard, u *worker, rt http.RoundTripper) {
		_, done := ask(t, g, func(r *http.Request) {
			for name, end := range map[string]func(context.Context) (context.Context, context.CancelFunc){
				"canceled": func(ctx context.Context) (context.Context, context.CancelFunc) {
					ctx, cancel := context.WithCancelCause(ctx)
					cancel(gone)
					return ctx, func() {}
				},
				"late": func(ctx context.Context) (context.Context, context.CancelFunc) {
					return context.WithDeadlineCause(ctx, time.Now(), gone)
				},
			} {
				ctx, cancel := end(r.Context())
				body := newPayload("x")
				req, _ := http.NewRequestWithContext(ctx, http.MethodPut, u.URL, body)
				err := take(rt, req)
				if !errors.Is(err, gone) && !errors.Is(err, ctx.Err()) || body.closes.Load() != 1 {
					t.Errorf("H33: %s: %v, body closed %d times", name, err, body.closes.Load())
				}
				cancel()
			}
		})
		await(t, "the end of the handler", done)
		u.proceed()
		if g.wantEmpty(t); u.requests.Load() > 0 {
			t.Errorf("H33: %d were sent", u.requests.Load())
		}
	})
}

// While the upstream works for a client that has left, no request of that slot joins it: neither a retry nor one that waits for a
// connection.
func TestSlotIsOneRequestAtTheUpstream(t *testing.T) {
	t.Run("retries", func(t *testing.T) {
		u := newWorker(t, false)
		g := newGuard(t, 1, 0)
		rt := newRetry(t, newCaller(t, retry.Config{Attempts: 3}), wardenhttp.RetryConfig{
			Base: wardenhttp.Detach(u.base(t)), AttemptTimeout: 20 * time.Millisecond,
		})
		_, done := ask(t, g, func(r *http.Request) {
			req, _ := http.NewRequestWithContext(r.Context(), http.MethodGet, u.URL, http.NoBody)
			if err := take(rt, req); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
			g.wantInFlight(t, "H23: while the upstream works for nobody", 1)
			go u.proceed()
			if err := take(wardenhttp.Detach(u.base(t)), req.Clone(r.Context())); err != nil { // it waits, and then it is sent
				t.Errorf("H33: after the upstream is done: %v", err)
			}
		})
		await(t, "the end of the handler", done)
		if all, most := u.requests.Load(), u.most.Load(); all != 2 || most != 1 {
			t.Errorf("H33: with one slot the upstream had %d requests, %d at a time, want 2, 1", all, most)
		}
		g.wantEmpty(t)
	})
	t.Run("no connection", func(t *testing.T) {
		u := newWorker(t, false)
		base := u.base(t)
		base.MaxConnsPerHost = 1
		g := newGuard(t, 1, 0)
		other, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, u.URL, http.NoBody)
		others := make(chan error, 1)
		go func() { others <- take(base, other) }()
		await(t, "another's request", u.begun)
		waits := make(chan struct{})
		leave, done := ask(t, g, func(r *http.Request) {
			ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GetConn: func(string) { close(waits) }})
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, u.URL, http.NoBody)
			if err := take(wardenhttp.Detach(base), req); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		})
		await(t, "a request that waits", waits)
		leave()
		await(t, "the end of the handler", done)
		g.wantEmpty(t) // it waits for a connection no more
		u.proceed()
		if err := <-others; err != nil {
			t.Error(err)
		}
		if n := u.requests.Load(); n != 1 {
			t.Errorf("H33: %d requests, want 1: one was sent when its client had left", n)
		}
	})
}

// An http.Client's Timeout ends the wait, not the upstream's work.
func TestDetachOutlivesTheTimeoutOfAClient(t *testing.T) {
	u := newWorker(t, false)
	g := newGuard(t, 1, 0)
	client := &http.Client{Transport: wardenhttp.Detach(u.base(t)), Timeout: 20 * time.Millisecond}
	_, done := ask(t, g, func(r *http.Request) {
		if err := inquire(r.Context(), client, u.URL, http.NoBody); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
	await(t, "the end of the handler", done)
	for range 100 { // time for a wrong release
		time.Sleep(time.Millisecond)
	}
	g.wantInFlight(t, "H23: while the upstream works for nobody", 1)
	u.proceed()
	g.wantEmpty(t)
}

// A Buffered handler that was left behind answers, for nobody, while an outer handler does with the request's headers what it likes.
// What the answer varies by is known from the beginning, whatever the handler has made of them.
func TestAnAnswerOfAHandlerLeftBehind(t *testing.T) {
	over, done := make(chan struct{}), make(chan struct{})
	g := newGuard(t, 1, 0)
	r := newRequest("Priority", "u=7")
	cfg := wardenhttp.Config{Buffered: true, Timeout: 10 * time.Millisecond}
	w := recorded(g.handle(t, cfg, func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		r.Header.Del("Priority")
		<-over
		if wardenhttp.WriteError(w, nil, r.Context().Err()); w.Header().Get("Vary") != "Priority" {
			t.Errorf("H6: %v", w.Header())
		}
	}), r)
	close(over)
	r.Header = http.Header{"Late": {"1"}} // it is another's
	if w.Header().Get("Vary") != "Priority" {
		t.Errorf("H6: %v", w.Header())
	}
	await(t, "the end of the handler", done)
	g.wantEmpty(t)
}
