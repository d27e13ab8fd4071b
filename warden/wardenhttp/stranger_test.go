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
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/timelimit"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/retry"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// silent answers when its client has left.
func silent(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
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
	slow, slow2 := startServer(t, http.HandlerFunc(silent), false), startServer(t, http.HandlerFunc(silent), true)
	guarded := startServer(t, newGuard(t, 100, 0).handle(t, wardenhttp.Config{Buffered: true, Trusted: always(true)}, silent), false)
	mute := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { mute.Close() })
	again := newRetry(t, newCaller(t, retry.Config{}), wardenhttp.RetryConfig{Base: slow.Client().Transport})
	told := &http.Client{Transport: newTransport(t, newGuard(t, 100, 0), guarded.Client().Transport)}
	toldAgain := &http.Client{Transport: newRetry(t, newCaller(t, retry.Config{}), wardenhttp.RetryConfig{Base: guarded.Client().Transport})}
	full, busy := compartment(t, bulkhead.CompartmentConfig{MaxQueue: 1000}), newGuard(t, 1, 1000)
	fill(t, full, 1)
	must(busy.TryAcquire(warden.Task{}))(t)
	waits := func(wait func(ctx context.Context) error) func(context.Context, io.Reader) error {
		return func(ctx context.Context, body io.Reader) error {
			if _, err := io.Copy(io.Discard, body); err != nil {
				return err
			}
			return wait(ctx)
		}
	}
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
		"a retry that tells the time":     func(ctx context.Context, body io.Reader) error { return inquire(ctx, toldAgain, guarded.URL, body) },
		"a detached request": func(ctx context.Context, body io.Reader) error {
			return inquire(ctx, &http.Client{Transport: wardenhttp.Detach(slow.Client().Transport)}, slow.URL, body)
		},
		"a full compartment": waits(func(ctx context.Context) error {
			_, err := bulkhead.Do(ctx, full, func(context.Context) (int, error) { return 0, nil })
			return err
		}),
		"a full warden": waits(func(ctx context.Context) error {
			_, err := warden.Do(ctx, busy.Warden, warden.Task{}, func(context.Context) (int, error) { return 0, nil })
			return err
		}),
		"a look-up of a name": waits(func(ctx context.Context) error {
			d := net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", mute.Addr().String())
			}}}
			c, err := d.DialContext(ctx, "tcp", "stopbank.test:80")
			if err == nil {
				c.Close()
			}
			return err
		}),
		"a driver that sets deadlines": waits(func(ctx context.Context) error {
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
		}),
	}
}

// strangers are the ways to end a request that only its client has chosen. Each returns when it is answered, or has left.
var strangers = map[string]func(t *testing.T, addr string){
	"his own deadline": func(t *testing.T, addr string) {
		resp := send(t, http.DefaultClient, http.MethodPost, "http://"+addr, strings.NewReader("all of it"), "Warden-Timeout", "30")
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
				h := newGuard(t, 1, 0).handle(t, wardenhttp.Config{Grace: 100 * time.Millisecond}, func(_ http.ResponseWriter, r *http.Request) {
					_, err := bulkhead.Do(r.Context(), c, func(ctx context.Context) (int, error) { return 0, wait(ctx, r.Body) })
					failed <- err
				})
				comes(t, startServer(t, h, false).Listener.Addr().String())
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

// What stands still while a client's body comes must not have passed for those who set a timer to it: no library, the handler's own
// timeouts included, sees a time that the client told.
func TestATimeThatStandsStillIsNoDeadline(t *testing.T) {
	for _, name := range []string{"Warden-Timeout", "Grpc-Timeout", "Connect-Timeout-Ms"} {
		for _, trusted := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				req := httptest.NewRequest(http.MethodPost, "/", dawdling{time.Minute})
				req.Header.Set(name, map[bool]string{true: "100m", false: "100"}[name == "Grpc-Timeout"])
				cfg := wardenhttp.Config{Trusted: always(trusted), Timeout: time.Hour}
				recorded(newGuard(t, 1, 0).handle(t, cfg, func(_ http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					due, bounded := r.Context().Deadline()
					if err := r.Context().Err(); bounded || err != nil {
						t.Errorf("H14: %s: %v, due in %v", name, err, time.Until(due))
					}
					if says := r.Header.Get(name); (says != "") != (trusted || name == "Warden-Timeout") {
						t.Errorf("H14: %s, trusted %t: a library reads %q", name, trusted, says)
					}
					ctx, cancel := context.WithTimeout(r.Context(), 50*time.Millisecond)
					defer cancel()
					began := time.Now()
					if <-ctx.Done(); time.Since(began) != 50*time.Millisecond || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
						t.Errorf("H14: %s: a timeout of the handler's: %v after %v", name, ctx.Err(), time.Since(began))
					}
				}), req)
			})
		}
	}
}

// Whoever waits for a slot until a stranger's time is up, or has too little of it, is nobody's failure: the rejection says so.
func TestARejectionForAStrangersTime(t *testing.T) {
	for _, whose := range []timelimit.Whose{timelimit.Service, timelimit.Trusted, timelimit.Stranger} {
		synctest.Test(t, func(t *testing.T) {
			// not started: the slots' own timers are to be the first
			ctx := timelimit.New(t.Context(), nil, whose, time.Now().Add(time.Second), time.Second, context.DeadlineExceeded)
			defer ctx.Stop()
			full, busy := compartment(t, bulkhead.CompartmentConfig{MaxQueue: 1}), newGuard(t, 1, 1)
			fill(t, full, 1)
			must(busy.TryAcquire(warden.Task{}))(t)
			_, _, err1 := full.Acquire(ctx)
			_, _, err2 := busy.Acquire(ctx, warden.Task{})
			if timelimit.TooShort(ctx) != (whose == timelimit.Stranger) {
				t.Errorf("H16: %d: too short %t", whose, timelimit.TooShort(ctx))
			}
			for _, err := range []error{err1, err2} {
				var r *warden.Rejection
				if !errors.As(err, &r) || r.Reason != decision.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded) != (whose < timelimit.Stranger) ||
					errors.Is(err, context.Canceled) != (whose == timelimit.Stranger) {
					t.Errorf("H14: %d: %v, because of %v", whose, err, errors.Unwrap(err))
				}
			}
		})
	}
}

// What strangers give too little time, started or not, is in no load report: they would choose where a balancer sends the others.
func TestStrangersRuinNoLoad(t *testing.T) {
	for _, says := range []string{"10", ""} {
		synctest.Test(t, func(t *testing.T) {
			w := must(warden.New(warden.Config{Control: control.Config{Min: 1, Max: 1, Initial: 1}}))(t)
			h := handle(t, w, wardenhttp.Config{Timeout: time.Minute}, func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(50 * time.Millisecond)
				if says == "" {
					w.WriteHeader(http.StatusInternalServerError)
				}
			})
			var all sync.WaitGroup
			for range 200 {
				req := newRequest()
				if says != "" {
					req.Header.Set("Warden-Timeout", says)
				}
				all.Go(func() { h.ServeHTTP(httptest.NewRecorder(), req) })
				time.Sleep(7 * time.Millisecond)
			}
			if n := w.Limiter().Stats().RejectedFor(decision.DeadlineExceeded); (n == 0) != (says == "") {
				t.Errorf("%q: %d for their deadlines", says, n)
			}
			if l := w.Load(); l.Utilization == 0 || (l.Failed == 0) != (says != "") {
				t.Errorf("H28: %q: %+v", says, l)
			}
			all.Wait()
		})
	}
}

// dawdling is a body whose end comes after that time.
type dawdling struct{ after time.Duration }

func (d dawdling) Read([]byte) (int, error) {
	time.Sleep(d.after)
	return 0, io.EOF
}

// A request that has less than a millisecond to live, as a stranger's header says that goes on with it, is not the upstream's failure.
func TestStrangersTimeIsTooShortToSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newTransport(t, newGuard(t, 1, 0), roundTrip(func(r *http.Request) (*http.Response, error) {
			return nil, r.Context().Err()
		}))
		recorded(newHandler(t, newGuard(t, 1, 0), func(_ http.ResponseWriter, r *http.Request) {
			_, err := rt.RoundTrip(r.Clone(r.Context()))
			if !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("H14: %v", err)
			}
		}), newRequest("X-Request-Timeout", "0.0009"))
	})
}

// An upstream that sees at once that a stranger's time is too little is not to blame, whatever else bounds the request, and neither is
// the service, which says what its client has chosen.
func TestTooLittleTimeOfAStrangers(t *testing.T) {
	d := decision.ControlDecision{Seq: 1, TargetConcurrency: 1, Needs: map[string]time.Duration{"": time.Hour}}
	busy := must(warden.New(warden.Config{
		Controller: constant{d}, Interval: 10 * time.Second, Limiter: limiter.Config{Initial: d, Rand: func() float64 { return 0 }}, // no trial
	}))(t)
	must(busy.TryAcquire(warden.Task{}))(t)
	foresees := handle(t, busy, wardenhttp.Config{Trusted: always(true)}, nil)
	upstream := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/rpc" { // gRPC has a status of its own
			w.Header().Set("Warden-Rejected", "deadline_exceeded")
			return
		}
		foresees.ServeHTTP(w, r)
	}), false)
	own := func(base http.RoundTripper) http.RoundTripper { return base }
	trusts := wardenhttp.Config{Trusted: always(true)}
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
		"no middleware":              {cfg: wardenhttp.Config{Exempt: always(true)}, want: http.StatusBadGateway},
		"a trusted client":           {cfg: trusts, want: http.StatusGatewayTimeout, failures: 1},
		"the handler's alone":        {cfg: trusts, timeout: patience / 2, want: http.StatusGatewayTimeout, failures: 1},
		"detached":                   {bare: wardenhttp.Detach, want: http.StatusGatewayTimeout},
		"told by the header alone":   {bare: own, want: http.StatusGatewayTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			b, g, caller := &fuse{}, newGuard(t, 1, 0), newCaller(t, retry.Config{Attempts: 1})
			base := upstream.Client().Transport
			rt := newRetry(t, caller, wardenhttp.RetryConfig{Base: sentIn(t, compartment(t, bulkhead.CompartmentConfig{Breaker: b}), base)})
			if c.bare != nil {
				rt = c.bare(base)
				b.told = []error{context.Canceled}
			}
			proxy := proxyTo(t, upstream.URL, rt)
			s := startServer(t, g.handle(t, c.cfg, func(w http.ResponseWriter, r *http.Request) {
				if c.timeout > 0 {
					ctx, cancel := context.WithTimeout(r.Context(), c.timeout)
					defer cancel()
					r = r.WithContext(ctx)
				}
				proxy.ServeHTTP(w, r)
			}), false)
			told := fmt.Sprint(patience.Milliseconds())
			resp := send(t, s.Client(), http.MethodGet, s.URL+c.path, http.NoBody, "Warden-Timeout", told)
			resp.Body.Close()
			g.wantEmpty(t)
			if resp.StatusCode != c.want {
				t.Errorf("H14: %s", resp.Status)
			}
			if len(b.told) != 1 || bulkhead.IsExcluded(b.told[0]) == (c.failures > 0) {
				t.Errorf("H14: the breaker was told %v", b.told)
			}
			if s := caller.Stats(); int(s.Rejected+s.Failed) != c.failures {
				t.Errorf("H14: the retry budget was told %+v", s)
			}
			if n := g.Limiter().Stats().Failed; int(n) != c.failures {
				t.Errorf("H31: %d failed", n)
			}
		})
	}
	if n := busy.Limiter().Stats().RejectedFor(decision.DeadlineExceeded); n == 0 {
		t.Error("H14: the upstream has not rejected for want of time")
	}
}
