// SPDX-License-Identifier: Apache-2.0

// What a stranger alone has caused, by a deadline of his own, by leaving, or by a body that is none, is no failure of what the
// handler asks, through whatever library the handler asks it (H14).

package wardenhttp_test

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
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

// A body that is none, stops or is too long is the client's fault whoever has bounded it, and no failure of the service; a deadline that
// the handler has set for it is the handler's own, and so is the answer to a body that is whole.
func TestAStrangersBody(t *testing.T) {
	bound := func(at time.Time) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).SetReadDeadline(at) }
	}
	nothing := func(http.ResponseWriter, *http.Request) {}
	for name, c := range map[string]struct {
		chunk   string
		prepare http.HandlerFunc
		client  bool // it is his fault
		failed  uint64
	}{
		"none":                          {"none\r\n", nothing, true, 0},
		"none, with the handler's time": {"none\r\n", bound(time.Time{}), true, 0},
		"too long":                      {"20\r\n0123456789abcdef0123456789abcdef\r\n", nothing, true, 0},
		"stops":                         {"", nothing, true, 0},
		"past the handler's time":       {"", bound(time.Unix(1, 0)), false, 0}, // net/http takes that for a client who has left
		"whole":                         {"0\r\n\r\n", nothing, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			g, failed := newGuard(t, 2, 0), make(chan error, 1) // nobody else needs the slot: Grace is what ends a body that stops
			h := g.handle(t, wardenhttp.Config{Grace: 100 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
				c.prepare(w, r)
				_, err := io.Copy(io.Discard, r.Body)
				failed <- err
				w.WriteHeader(http.StatusBadGateway) // as a proxy does
			})
			s := startServer(t, http.MaxBytesHandler(h, 16), false)
			scribble(t, s.Listener.Addr().String(), "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"+c.chunk, patience)
			err := <-failed
			g.wantEmpty(t)
			var tooLong *http.MaxBytesError
			if errors.Is(err, context.Canceled) != c.client || errors.As(err, &tooLong) != (name == "too long") {
				t.Errorf("H14: %v", err)
			}
			if errors.Is(err, wardenhttp.ErrSlowPeer) != (name == "stops") {
				t.Errorf("H15: %v", err)
			}
			if n := g.Limiter().Stats().Failed; n != c.failed {
				t.Errorf("H31: %d failed, want %d", n, c.failed)
			}
		})
	}
}

// sentOn is a server that sends requests on to an upstream, and what is told of how they end there.
type sentOn struct {
	*httptest.Server
	*guard
	fuse   *fuse
	caller *retry.Caller
}

func sendOn(t *testing.T, upstream *httptest.Server, detached bool, unpack func(http.ResponseWriter, *http.Request)) sentOn {
	of := sentOn{guard: newGuard(t, 1, 0), fuse: &fuse{}, caller: newCaller(t, retry.Config{Attempts: 1})}
	base, c := upstream.Client().Transport, compartment(t, bulkhead.CompartmentConfig{Breaker: of.fuse})
	if detached {
		bare := wardenhttp.Detach(base)
		base = roundTrip(func(r *http.Request) (*http.Response, error) {
			return bulkhead.Do(r.Context(), c, func(context.Context) (*http.Response, error) { return bare.RoundTrip(r) })
		})
	} else {
		base = sentIn(t, c, base)
	}
	proxy := proxyTo(t, upstream.URL, newRetry(t, of.caller, wardenhttp.RetryConfig{Base: base}))
	h := newHandler(t, of.guard, func(w http.ResponseWriter, r *http.Request) {
		if unpack != nil {
			unpack(w, r)
		}
		proxy.ServeHTTP(w, r)
	})
	of.Server = startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=3600") // as an outer handler says of all answers
		h.ServeHTTP(w, r)
	}), false)
	return of
}

// wantInnocent waits for the end of a request, with which nobody is told of a failure.
func (s sentOn) wantInnocent(t *testing.T, of string) {
	t.Helper()
	s.wantEmpty(t)
	for _, err := range s.fuse.told {
		if err != nil && !bulkhead.IsExcluded(err) {
			t.Errorf("H14: %s: the breaker was told %v", of, err)
		}
	}
	if stats := s.caller.Stats(); stats.Failed+stats.Rejected > 0 {
		t.Errorf("H14: %s: the retry budget was told %+v", of, stats)
	}
	if n := s.Limiter().Stats().Failed; n > 0 {
		t.Errorf("H31: %s: %d failed", of, n)
	}
}

// A body that the handler cannot unpack, or does not want so long, is its client's mistake, and one that the handler makes itself is
// the service's failure; neither is one of the upstream's.
func TestABodyThatCannotBeUnpacked(t *testing.T) {
	upstream := startServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }), false)
	var packed bytes.Buffer
	pack := gzip.NewWriter(&packed)
	for i := range 10000 {
		_, _ = fmt.Fprint(pack, i)
	}
	noError(t, pack.Close())
	for name, c := range map[string]struct {
		body   string
		unpack func(w http.ResponseWriter, r *http.Request)
		status int
	}{
		"broken off": {packed.String()[:packed.Len()-5], func(_ http.ResponseWriter, r *http.Request) {
			unpacked, err := gzip.NewReader(r.Body)
			noError(t, err)
			r.Body, r.ContentLength = unpacked, -1
		}, http.StatusBadRequest},
		"too long": {packed.String(), func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, 10)
		}, http.StatusRequestEntityTooLarge},
		"the handler's own": {"", func(_ http.ResponseWriter, r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(iotest.ErrReader(errors.New("broken"))), 5
		}, http.StatusBadGateway},
	} {
		for _, detached := range []bool{false, true} {
			s := sendOn(t, upstream, detached, c.unpack)
			resp := send(t, s.Client(), http.MethodPost, s.URL, strings.NewReader(c.body))
			if resp.Body.Close(); resp.StatusCode != c.status {
				t.Errorf("H14: %s, detached %t: %s, want %d", name, detached, resp.Status, c.status)
			}
			if c.status != http.StatusBadGateway {
				s.wantInnocent(t, name)
			} else if s.wantEmpty(t); s.caller.Stats().Failed > 0 || s.Limiter().Stats().Failed != 1 {
				t.Errorf("H31: %s: %+v, %d failed", name, s.caller.Stats(), s.Limiter().Stats().Failed)
			}
		}
	}
}

// A proxy that breaks its answer off because its client's body is none has not failed, and one that does without such a reason has.
func TestAnAnswerBrokenOffForABody(t *testing.T) {
	for chunk, failed := range map[string]bool{"none\r\n": false, "0\r\n\r\n": true} {
		f := new(fuse)
		c := compartment(t, bulkhead.CompartmentConfig{Breaker: f})
		over := make(chan struct{})
		h := handle(t, nil, wardenhttp.Config{Compartment: in(c)}, func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte("begun"))
			_, _ = io.Copy(io.Discard, r.Body)
			panic(http.ErrAbortHandler)
		})
		s := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(over)
			h.ServeHTTP(w, r)
		}), false)
		scribble(t, s.Listener.Addr().String(), "Transfer-Encoding: chunked\r\n\r\n"+chunk, patience)
		<-over
		f.mu.Lock()
		if len(f.told) != 1 || bulkhead.IsExcluded(f.told[0]) == failed {
			t.Errorf("H14: %q: the breaker was told %v", chunk, f.told)
		}
		f.mu.Unlock()
	}
}

// A stranger's request that net/http does not send on for what is in it is his mistake, and nobody else's failure.
func TestWhatCannotBeSentOn(t *testing.T) {
	for name, rest := range map[string]string{
		"a trailer that is none":      "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTrailer: no name\r\n\r\n0\r\n\r\n",
		"a trailer of a connection's": "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTrailer: Te\r\n\r\n0\r\nTe: x\r\n\r\n",
		"one that was not announced":  "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n0\r\nConnection: x\r\nno name: x\r\n\r\n",
		"an upgrade to what is none":  "GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: \xff\r\n\r\n",
		"an upgrade over HTTP/2":      "GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: any\r\n\r\n",
		"no path over HTTP/2":         "GET http:none HTTP/1.1\r\n\r\n",
		"more headers than are taken": "GET / HTTP/1.1\r\nMany: " + strings.Repeat("x", 100_000) + "\r\n\r\n",
	} {
		for _, http2 := range []bool{false, true} {
			for _, detached := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, HTTP/2 %t, detached %t", name, http2, detached), func(t *testing.T) {
					upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
					upstream.Config.MaxHeaderBytes, upstream.EnableHTTP2 = 10_000, http2
					upstream.Config.ErrorLog = log.New(io.Discard, "", 0)
					upstream.StartTLS()
					t.Cleanup(upstream.Close)
					s := sendOn(t, upstream, detached, nil)
					wantStatus(t, s.Server, http.StatusOK) // the upstream has told what it takes
					_, answer := raw(t, s.Server, strings.Replace(rest, "\r\n", "\r\nHost: x\r\n", 1))
					resp := must(http.ReadResponse(answer, nil))(t)
					resp.Body.Close()
					if resp.StatusCode >= http.StatusInternalServerError {
						t.Errorf("H14: %s", resp.Status)
					}
					if resp.StatusCode == http.StatusBadRequest && resp.ContentLength == 0 && resp.Header.Get("Cache-Control") != "no-store" {
						t.Errorf("H6: %v", resp.Header)
					}
					s.wantInnocent(t, name)
				})
			}
		}
	}
}

// A stranger who sends or reads so slowly that an upstream gives up keeps nobody else from it.
func TestAnUpstreamThatLosesPatience(t *testing.T) {
	const patient = 2 * time.Second // one of them must go by waiting for the client, on a busy machine too
	upstream := func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.SetReadDeadline(time.Now().Add(patient))
		_, err := io.Copy(io.Discard, r.Body)
		for err == nil && r.Method == http.MethodGet {
			_ = rc.SetWriteDeadline(time.Now().Add(patient))
			_, err = w.Write(make([]byte, 64<<10))
		}
		if r.URL.Path == "/says" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		panic(http.ErrAbortHandler)
	}
	var all sync.WaitGroup
	defer all.Wait()
	for name, request := range map[string]string{
		"a body":                    "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\n",
		"a body, and it is said so": "POST /says HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\n",
		"an answer":                 "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		for _, http2 := range []bool{false, true} {
			for _, detached := range []bool{false, true} {
				s := sendOn(t, startServer(t, http.HandlerFunc(upstream), http2), detached, nil)
				conn, _ := raw(t, s.Server, "")
				all.Go(func() {
					defer conn.Close()
					fmt.Fprint(conn, request)
					if strings.HasPrefix(request, "GET") {
						time.Sleep(3 * patient / 2) // he does not read
					} else {
						go func() { // he trickles
							for err := error(nil); err == nil; _, err = fmt.Fprint(conn, "x") {
								time.Sleep(patient / 20)
							}
						}()
					}
					_, _ = io.Copy(io.Discard, conn)
					s.wantInnocent(t, fmt.Sprintf("%s, HTTP/2 %t, detached %t", name, http2, detached))
				})
			}
		}
	}
}

// A client who was slow, or broke off, before a request is sent excuses nothing of how that ends: it did not wait for him.
func TestASlowClientExcusesNothingElse(t *testing.T) {
	for name, rest := range map[string]io.Reader{
		"slow":        dawdling{time.Hour}, // the handler does not look for the end
		"broke off":   iotest.ErrReader(io.ErrUnexpectedEOF),
		"slow beside": dawdling{time.Minute},
	} {
		for _, hangs := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				b, g := &fuse{}, newGuard(t, 1, 0)
				c := compartment(t, bulkhead.CompartmentConfig{Breaker: b, Timeout: 2 * time.Second})
				dead := sentIn(t, c, roundTrip(func(r *http.Request) (*http.Response, error) {
					if hangs {
						<-r.Context().Done()
					}
					return nil, errors.New("refused")
				}))
				rec := recorded(newHandler(t, g, func(w http.ResponseWriter, r *http.Request) {
					_, err := io.ReadFull(r.Body, make([]byte, 5))
					switch name {
					case "broke off":
						_, err = r.Body.Read(make([]byte, 1))
					case "slow beside":
						go func() { _, _ = io.Copy(io.Discard, r.Body) }()
					}
					if _, err2 := dead.RoundTrip(newRequest().WithContext(r.Context())); errors.Is(err2, context.Canceled) {
						t.Errorf("H14: %s: %v, after %v", name, err2, err)
					}
					w.WriteHeader(http.StatusBadGateway)
				}), httptest.NewRequest(http.MethodPost, "/", io.MultiReader(pausing{}, strings.NewReader("whole"), rest)))
				if len(b.told) != 1 || bulkhead.IsExcluded(b.told[0]) || rec.Code != http.StatusBadGateway {
					t.Errorf("H14: %s, hangs %t: the breaker was told %v, the client %d", name, hangs, b.told, rec.Code)
				}
				if n := g.Limiter().Stats().Failed; n != 1 && name == "slow" {
					t.Errorf("H31: %d failed", n)
				}
				time.Sleep(time.Minute)
			})
		}
	}
}

// pausing is nothing, after a while.
type pausing struct{}

func (pausing) Read([]byte) (int, error) { return dawdling{5 * time.Second}.Read(nil) }

// Whoever closes a body does not wait for its client.
func TestClosingABodyWaitsForNobody(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		closed := make(chan struct{})
		s := serve(newHandler(t, newGuard(t, 1, 0), func(_ http.ResponseWriter, r *http.Request) {
			err := r.Body.Close()
			if _, again := r.Body.Read(make([]byte, 1)); err != nil || !errors.Is(again, http.ErrBodyReadAfterClose) {
				t.Errorf("H15: %v, %v", err, again)
			}
			close(closed)
		}))
		pr, pw := io.Pipe()
		defer pw.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, pr)
		go func() {
			if resp, err := s.Client().Do(req); err == nil {
				resp.Body.Close()
			}
		}()
		await(t, "the end of Close", closed)
	})
}

// The time of a compartment, and that of an attempt, in which a client's body was waited for is no failure of whom it goes to; that in
// which the upstream has all of it is.
func TestTimeoutsWhileABodyIsAwaited(t *testing.T) {
	const longest = 500 * time.Millisecond
	for name, c := range map[string]struct {
		timeout, attempt time.Duration
		body             string
		failures         int
	}{
		"a compartment's":            {timeout: longest, body: "some"},
		"an attempt's":               {attempt: longest, body: "some"},
		"a compartment's, all of it": {timeout: longest, body: "all of it!", failures: 1},
		"an attempt's, all of it":    {attempt: longest, body: "all of it!", failures: 1},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %t", name, http2), func(t *testing.T) {
				t.Parallel()
				upstream, inner, outer := startServer(t, http.HandlerFunc(silent), http2), &fuse{}, &fuse{}
				caller := newCaller(t, retry.Config{Attempts: 1})
				of := compartment(t, bulkhead.CompartmentConfig{Breaker: inner, Timeout: c.timeout})
				base := sentIn(t, of, upstream.Client().Transport)
				rt := newRetry(t, caller, wardenhttp.RetryConfig{AttemptTimeout: c.attempt, Base: base})
				around := compartment(t, bulkhead.CompartmentConfig{Breaker: outer})
				g := newGuard(t, 1, 0)
				s := startServer(t, newHandler(t, g, func(_ http.ResponseWriter, r *http.Request) {
					_, _ = bulkhead.Do(r.Context(), around, func(ctx context.Context) (int, error) {
						return 0, inquire(ctx, &http.Client{Transport: rt}, upstream.URL, r.Body)
					})
				}), false)
				scribble(t, s.Listener.Addr().String(), "Content-Length: 10\r\n\r\n"+c.body, 2*longest)
				g.wantEmpty(t)
				for _, b := range []*fuse{inner, outer} {
					if len(b.told) != 1 || bulkhead.IsExcluded(b.told[0]) == (c.failures > 0) || timedOut(b.told[0]) != (c.failures > 0) {
						t.Errorf("H14: a breaker was told %v", b.told)
					}
				}
				if n := caller.Stats().Failed; int(n) != c.failures {
					t.Errorf("H14: the retry budget was told of %d failures", n)
				}
			})
		}
	}
}

// A host that is none is the mistake of whoever has named it.
func TestAHostThatIsNone(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		upstream := startServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), http2)
		rt := newTransport(t, newGuard(t, 1, 0), upstream.Client().Transport)
		newHandler(t, newGuard(t, 1, 0), func(_ http.ResponseWriter, r *http.Request) {
			req := must(http.NewRequestWithContext(r.Context(), http.MethodGet, upstream.URL, http.NoBody))(t)
			req.Host = "xn--a\u00e4"
			if _, err := rt.RoundTrip(req); !errors.Is(err, context.Canceled) {
				t.Errorf("H14: HTTP/2 %t: %v", http2, err)
			}
		}).ServeHTTP(httptest.NewRecorder(), newRequest())
	}
}

// A stranger's mistake excuses no later failure of another request of the same handler's.
func TestAMistakeExcusesNoOtherFailure(t *testing.T) {
	refused := errors.New("http2: invalid Connection request header")
	for name, fails := range map[string]http.RoundTripper{
		"an error":  roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") }),
		"an answer": answering(http.StatusBadGateway, "Server", "dead"),
	} {
		for _, detached := range []bool{false, true} {
			g := newGuard(t, 1, 0)
			send := func(ctx context.Context, base http.RoundTripper) error {
				base = wardenhttp.Detach(base)
				if !detached {
					base = newTransport(t, newGuard(t, 1, 0), base)
				}
				resp, err := base.RoundTrip(newRequest().WithContext(ctx))
				if err == nil {
					err = resp.Body.Close()
				}
				return err
			}
			rec := httptest.NewRecorder()
			newHandler(t, g, func(w http.ResponseWriter, r *http.Request) {
				mistaken := roundTrip(func(*http.Request) (*http.Response, error) { return nil, refused })
				if err := send(r.Context(), mistaken); !errors.Is(err, context.Canceled) {
					t.Errorf("H14: %v", err)
				}
				_ = send(r.Context(), fails)
				w.WriteHeader(http.StatusBadGateway)
			}).ServeHTTP(rec, newRequest())
			if n := g.Limiter().Stats().Failed; rec.Code != http.StatusBadGateway || n != 1 {
				t.Errorf("H31: %s, detached %t: %d, and %d failed", name, detached, rec.Code, n)
			}
		}
	}
}

// A request that fails while it waits for a stranger's body matches no timeout, whoever's time was up.
func TestASlowBodyIsNoTimeout(t *testing.T) {
	reads := roundTrip(func(r *http.Request) (*http.Response, error) {
		go func() { _, _ = io.Copy(io.Discard, r.Body) }()
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	})
	for name, base := range map[string]func(t *testing.T) http.RoundTripper{
		"an attempt's time": func(t *testing.T) http.RoundTripper {
			return newRetry(t, newCaller(t, retry.Config{Attempts: 1}), wardenhttp.RetryConfig{Base: reads, AttemptTimeout: 2 * time.Second})
		},
		"a compartment's": func(t *testing.T) http.RoundTripper {
			return must(wardenhttp.NewTransport(nil, wardenhttp.TransportConfig{Base: reads,
				Compartment: in(compartment(t, bulkhead.CompartmentConfig{Timeout: 2 * time.Second}))}))(t)
		},
	} {
		for _, ends := range []time.Duration{time.Minute, 1900 * time.Millisecond} { // or it comes too late for whom it goes to
			synctest.Test(t, func(t *testing.T) {
				rt := base(t)
				newHandler(t, newGuard(t, 1, 0), func(_ http.ResponseWriter, r *http.Request) {
					_, err := rt.RoundTrip(r.Clone(r.Context()))
					if errors.Is(err, context.DeadlineExceeded) || timedOut(err) || !errors.Is(err, context.Canceled) {
						t.Errorf("H14: %s, a body of %v: %v", name, ends, err)
					}
				}).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", dawdling{ends}))
				time.Sleep(time.Minute)
			})
		}
	}
}
