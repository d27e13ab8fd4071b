// SPDX-License-Identifier: Apache-2.0

// What a stranger alone has caused, by a deadline of his own, by leaving, or by a body that is none, is no failure of what the
// handler asks, through whatever library the handler asks it (H14).

package wardenhttp_test

import (
	"bufio"
	"cmp"
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
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/retry"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// silence is an upstream that answers when its client has left.
func silence(t *testing.T, http2 bool) *httptest.Server {
	return startServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}), http2)
}

// inquire sends a request with that body through a client.
func inquire(ctx context.Context, c *http.Client, url string, body io.Reader) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err = io.Copy(io.Discard, resp.Body); err == nil && resp.StatusCode >= http.StatusInternalServerError {
		err = errors.New(resp.Status)
	}
	return err
}

// dependencies are ways in which a handler waits for something, each with a library's own idea of deadlines and errors. Each is
// called with the context and the body of the request that is served.
func dependencies(t *testing.T) map[string]func(ctx context.Context, body io.Reader) error {
	slow, slow2 := silence(t, false), silence(t, true)
	guarded := startServer(t, must(wardenhttp.New(newGuard(t, 100, 0).Warden, wardenhttp.Config{
		Buffered: true, Trusted: func(*http.Request) bool { return true },
	}))(t).Handler(silence(t, false).Config.Handler), false)
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	again := newRetry(t, newCaller(t, retry.Config{}), wardenhttp.RetryConfig{Base: slow.Client().Transport})
	told := &http.Client{Transport: newTransport(t, newGuard(t, 100, 0), guarded.Client().Transport)}
	return map[string]func(context.Context, io.Reader) error{
		"HTTP/1": func(ctx context.Context, body io.Reader) error { return inquire(ctx, slow.Client(), slow.URL, body) },
		"HTTP/2": func(ctx context.Context, body io.Reader) error { return inquire(ctx, slow2.Client(), slow2.URL, body) },
		"a client with a timeout": func(ctx context.Context, body io.Reader) error {
			return inquire(ctx, &http.Client{Transport: slow.Client().Transport, Timeout: patience}, slow.URL, body)
		},
		"a timeout of the handler's": func(ctx context.Context, body io.Reader) error {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			return inquire(ctx, slow.Client(), slow.URL, body)
		},
		"a retry": func(ctx context.Context, body io.Reader) error {
			return inquire(ctx, &http.Client{Transport: again}, slow.URL, body)
		},
		"a service that is told the time": func(ctx context.Context, body io.Reader) error { return inquire(ctx, told, guarded.URL, body) },
		"a detached request": func(ctx context.Context, body io.Reader) error {
			return inquire(ctx, &http.Client{Transport: wardenhttp.Detach(slow.Client().Transport)}, slow.URL, body)
		},
		"a look-up of a name": func(ctx context.Context, body io.Reader) error {
			if _, err := io.Copy(io.Discard, body); err != nil {
				return err
			}
			d := net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", mute.Addr().String())
			}}}
			c, err := d.DialContext(ctx, "tcp", "stopbank.test:80")
			if err == nil {
				c.Close()
			}
			return err
		},
		"a driver that sets deadlines": func(ctx context.Context, body io.Reader) error {
			if _, err := io.Copy(io.Discard, body); err != nil {
				return err
			}
			c, err := new(net.Dialer).DialContext(ctx, "tcp", mute.Addr().String())
			if err != nil {
				return err
			}
			defer c.Close()
			if due, bounded := ctx.Deadline(); bounded {
				_ = c.SetDeadline(due)
			}
			unwatch := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
			defer unwatch()
			_, err = c.Read(make([]byte, 1))
			return cmp.Or(ctx.Err(), err)
		},
	}
}

// strangers are the ways to end a request that only its client has chosen. Each returns when it is answered, or has left.
var strangers = map[string]func(t *testing.T, addr string){
	"his own deadline": func(t *testing.T, addr string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr, strings.NewReader("all of it"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Warden-Timeout", "30")
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusGatewayTimeout {
			t.Errorf("H16: %s", resp.Status)
		}
	},
	"he leaves": func(t *testing.T, addr string) {
		scribble(t, addr, "Content-Length: 5\r\n\r\nhello", 30*time.Millisecond)
	},
	"his body stops": func(t *testing.T, addr string) {
		scribble(t, addr, "Content-Length: 500000\r\n\r\nhello", 30*time.Millisecond)
	},
	"his body is none": func(t *testing.T, addr string) {
		scribble(t, addr, "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nworld\r\n", patience)
	},
	"his body takes too long": func(t *testing.T, addr string) {
		scribble(t, addr, "Content-Length: 500000\r\n\r\nhello", patience)
	},
}

// scribble sends a request and closes the connection after that time, or when it is answered.
func scribble(t *testing.T, addr, rest string, after time.Duration) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\n%s", addr, rest)
	_ = c.SetReadDeadline(time.Now().Add(after))
	_, _ = bufio.NewReader(c).ReadByte()
}

func TestAStrangerIsNobodysFailure(t *testing.T) {
	for who, comes := range strangers {
		for what, wait := range dependencies(t) {
			t.Run(who+", "+what, func(t *testing.T) {
				t.Parallel()
				b := &fuse{}
				c := compartment(t, bulkhead.CompartmentConfig{Breaker: b})
				failed := make(chan error, 1)
				m := must(wardenhttp.New(newGuard(t, 1, 0).Warden, wardenhttp.Config{Grace: 100 * time.Millisecond}))(t)
				s := startServer(t, m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					_, err := bulkhead.Do(r.Context(), c, func(ctx context.Context) (int, error) { return 0, wait(ctx, r.Body) })
					failed <- err
				})), false)
				comes(t, s.Listener.Addr().String())
				err := <-failed
				if err == nil || errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, context.Canceled) ||
					timedOut(err) && !errors.Is(err, wardenhttp.ErrSlowPeer) {
					t.Errorf("H14: the handler has %v", err)
				}
				if len(b.told) != 1 || !bulkhead.IsExcluded(b.told[0]) {
					t.Errorf("H14: the breaker was told %v", b.told)
				}
			})
		}
	}
}

// timedOut is what many take for a failure of the other side.
func timedOut(err error) bool {
	var of interface{ Timeout() bool }
	return os.IsTimeout(err) || errors.As(err, &of) && of.Timeout()
}

// A request that has less than a millisecond to live, as a stranger's header says that goes on with it, is not the upstream's failure.
func TestStrangersTimeIsTooShortToSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newTransport(t, newGuard(t, 1, 0), roundTrip(func(r *http.Request) (*http.Response, error) {
			return nil, r.Context().Err()
		}))
		req := newRequest()
		req.Header.Set("X-Request-Timeout", "0.0009")
		newHandler(t, newGuard(t, 1, 0), func(_ http.ResponseWriter, r *http.Request) {
			out := r.Clone(r.Context())
			if _, err := rt.RoundTrip(out); !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("H14: %v", err)
			}
		}).ServeHTTP(httptest.NewRecorder(), req)
	})
}

// A server that was told a stranger's time through NewRetry, and says that it is up, has not failed.
func TestRetryIsToldThatAStrangersTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCaller(t, retry.Config{})
		rt := newRetry(t, c, wardenhttp.RetryConfig{Base: roundTrip(func(*http.Request) (*http.Response, error) {
			time.Sleep(101 * time.Millisecond)
			return respond(http.StatusGatewayTimeout, newPayload("x")), nil
		})})
		req := newRequest()
		req.Header.Set("Warden-Timeout", "100")
		newHandler(t, newGuard(t, 1, 0), func(_ http.ResponseWriter, r *http.Request) {
			if err := inquire(r.Context(), &http.Client{Transport: rt}, "http://upstream", http.NoBody); !errors.Is(err, context.Canceled) {
				t.Errorf("H14: %v", err)
			}
		}).ServeHTTP(httptest.NewRecorder(), req)
		if s := c.Stats(); s.Failed != 0 || s.Rejected != 0 {
			t.Errorf("H14: %+v", s)
		}
	})
}

// An upstream that sees at once that a stranger's time is too little is not to blame, whatever else bounds the request, and neither is
// the service, which says what its client has chosen.
func TestTooLittleTimeOfAStrangers(t *testing.T) {
	upstream := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Warden-Rejected", "deadline_exceeded")
		if r.URL.Path != "/rpc" { // gRPC has a status of its own
			w.WriteHeader(http.StatusGatewayTimeout)
		}
	}), false)
	to := must(url.Parse(upstream.URL))(t)
	yes := func(*http.Request) bool { return true }
	for name, c := range map[string]struct {
		path     string
		cfg      wardenhttp.Config
		timeout  time.Duration // of the handler's
		bare     func(http.RoundTripper) http.RoundTripper
		want     int
		failures int
	}{
		"his alone":                  {want: http.StatusGatewayTimeout},
		"a timeout of the handler's": {timeout: patience + time.Second/2, want: http.StatusGatewayTimeout},
		"an RPC":                     {path: "/rpc", want: http.StatusGatewayTimeout},
		"buffered":                   {cfg: wardenhttp.Config{Buffered: true}, want: http.StatusGatewayTimeout},
		"no middleware":              {cfg: wardenhttp.Config{Exempt: yes}, want: http.StatusBadGateway},
		"a trusted client":           {cfg: wardenhttp.Config{Trusted: yes}, want: http.StatusGatewayTimeout, failures: 1},
		"the handler's alone":        {cfg: wardenhttp.Config{Trusted: yes}, timeout: patience / 2, want: http.StatusGatewayTimeout, failures: 1},
		"detached":                   {bare: wardenhttp.Detach, want: http.StatusGatewayTimeout},
		"told by the header alone":   {bare: func(base http.RoundTripper) http.RoundTripper { return base }, want: http.StatusGatewayTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			b, g, caller := &fuse{}, newGuard(t, 1, 0), newCaller(t, retry.Config{Attempts: 1})
			rt := newRetry(t, caller, wardenhttp.RetryConfig{Base: must(wardenhttp.NewTransport(nil, wardenhttp.TransportConfig{
				Base: upstream.Client().Transport, Compartment: in(compartment(t, bulkhead.CompartmentConfig{Breaker: b})),
			}))(t)})
			if c.bare != nil {
				rt = c.bare(upstream.Client().Transport)
				b.told = []error{context.Canceled}
			}
			proxy := &httputil.ReverseProxy{
				Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) }, Transport: rt, ErrorLog: log.New(io.Discard, "", 0),
			}
			s := startServer(t, newMiddleware(t, g, c.cfg).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if c.timeout > 0 {
					ctx, cancel := context.WithTimeout(r.Context(), c.timeout)
					defer cancel()
					r = r.WithContext(ctx)
				}
				proxy.ServeHTTP(w, r)
			})), false)
			req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+c.path, http.NoBody))(t)
			req.Header.Set("Warden-Timeout", fmt.Sprint(patience.Milliseconds()))
			resp := must(s.Client().Do(req))(t)
			resp.Body.Close()
			g.wantEmpty(t)
			if resp.StatusCode != c.want {
				t.Errorf("H14: %s", resp.Status)
			}
			if len(b.told) != 1 || bulkhead.IsExcluded(b.told[0]) == (c.failures > 0) {
				t.Errorf("H14: the breaker was told %v", b.told)
			}
			if n := caller.Stats().Rejected; int(n) != c.failures {
				t.Errorf("H14: the retry budget was told of %d rejections", n)
			}
			if n := g.Limiter().Stats().Failed; int(n) != c.failures {
				t.Errorf("H31: %d failed", n)
			}
		})
	}
}

// A body that is none, or too long, is the client's fault whoever has bounded it; a deadline that the handler has set for it is the
// handler's own.
func TestAStrangersBody(t *testing.T) {
	bound := func(at time.Time) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).SetReadDeadline(at) }
	}
	for name, c := range map[string]struct {
		chunk   string
		prepare http.HandlerFunc
		own     bool
	}{
		"none":                          {"none\r\n", func(http.ResponseWriter, *http.Request) {}, false},
		"none, with the handler's time": {"none\r\n", bound(time.Time{}), false},
		"too long":                      {"20\r\n0123456789abcdef0123456789abcdef\r\n", func(http.ResponseWriter, *http.Request) {}, false},
		"past the handler's time":       {"", bound(time.Unix(1, 0)), true},
	} {
		t.Run(name, func(t *testing.T) {
			g, failed := newGuard(t, 1, 0), make(chan error, 1)
			s := startServer(t, http.MaxBytesHandler(newHandler(t, g, func(w http.ResponseWriter, r *http.Request) {
				c.prepare(w, r)
				_, err := io.Copy(io.Discard, r.Body)
				failed <- err
				w.WriteHeader(http.StatusBadGateway)
			}), 16), false)
			scribble(t, s.Listener.Addr().String(), "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"+c.chunk, patience)
			err := <-failed
			g.wantEmpty(t)
			var tooLong *http.MaxBytesError
			if errors.Is(err, context.Canceled) == c.own || errors.As(err, &tooLong) != (name == "too long") {
				t.Errorf("H14: %v", err)
			}
			if n := g.Limiter().Stats().Failed; n > 0 && !c.own {
				t.Errorf("H31: %d failed", n)
			}
		})
	}
}
