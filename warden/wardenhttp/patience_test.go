// SPDX-License-Identifier: Apache-2.0

// A client that keeps others waiting, by a slow body or by reading slowly, is what takes the time, and whom that tires has not failed.

package wardenhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/retry"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// A stranger who sends or reads so slowly that an upstream gives up keeps nobody else from it.
func TestAnUpstreamThatLosesPatience(t *testing.T) {
	const patient = 2 * time.Second // one of them must go by waiting for the client, on a busy machine too
	upstream := func(w http.ResponseWriter, r *http.Request) {
		rc, within := http.NewResponseController(w), patient
		switch r.URL.Path {
		case "/other":
			return
		case "/works":
			time.Sleep(3 * patient / 2)
		case "/late": // its time is up when it has all of it
			within = 2 * patient
		}
		_ = rc.SetReadDeadline(time.Now().Add(within))
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
		"a body that is whole late": "POST /late HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 20\r\n\r\n",
		"an answer":                 "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"an answer after work":      "GET /works HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
	} {
		for _, http2 := range []bool{false, true} {
			for _, detached := range []bool{false, true} {
				s := sendOn(t, startServer(t, http.HandlerFunc(upstream), http2), detached, nil)
				conn, _ := raw(t, s.Server, "")
				all.Go(func() {
					defer conn.Close()
					fmt.Fprint(conn, request)
					if strings.HasPrefix(request, "GET") {
						time.Sleep(3 * patient) // he does not read
					} else {
						go func() { // he trickles
							for err := error(nil); err == nil; _, err = fmt.Fprint(conn, "x") {
								time.Sleep(patient / 20)
							}
						}()
					}
					if strings.Contains(request, "/late") { // an upstream that has not crashed answers others meanwhile
						time.Sleep(patient / 2)
						must(s.Client().Get(s.URL + "/other"))(t).Body.Close()
					}
					_, _ = io.Copy(io.Discard, conn)
					s.wantInnocent(t, fmt.Sprintf("%s, HTTP/2 %t, detached %t", name, http2, detached))
				})
			}
		}
	}
}

// An upload that took its time excuses nobody who has all of it and then dies, answering nobody else, or keeps everybody waiting.
func TestALongUploadExcusesNothingAfterIt(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for name, dies := range map[string]bool{"dies": true, "hangs": false} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %t", name, http2), func(t *testing.T) {
				t.Parallel()
				u := startServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					if dies {
						panic(http.ErrAbortHandler)
					}
					<-r.Context().Done()
				}), http2)
				base := u.Client().Transport.(*http.Transport).Clone()
				base.ResponseHeaderTimeout = 300 * time.Millisecond
				defer base.CloseIdleConnections()
				b := &fuse{}
				rt := sentIn(t, compartment(t, bulkhead.CompartmentConfig{Breaker: b}), base)
				body := io.MultiReader(dawdling{1200 * time.Millisecond}, strings.NewReader("whole"))
				rec := recorded(newHandler(t, newGuard(t, 1, 0), proxyTo(t, u.URL, rt).ServeHTTP), httptest.NewRequest(http.MethodPost, "/", body))
				if len(b.told) != 1 || bulkhead.IsExcluded(b.told[0]) || rec.Code != http.StatusBadGateway {
					t.Errorf("H14: the breaker was told %v, the client %d", b.told, rec.Code)
				}
			})
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

// A small request beside the wait for a client, in another goroutine, fails for itself: nobody waits for its body.
func TestASmallRequestBesideASlowClient(t *testing.T) {
	hung := roundTrip(func(r *http.Request) (*http.Response, error) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	})
	for name, through := range map[string]func(http.RoundTripper) http.RoundTripper{
		"a retry": func(rt http.RoundTripper) http.RoundTripper {
			return newRetry(t, newCaller(t, retry.Config{Attempts: 1}), wardenhttp.RetryConfig{Base: rt, AttemptTimeout: 2 * time.Second})
		},
		"a hedge": func(rt http.RoundTripper) http.RoundTripper {
			return newRetry(t, newCaller(t, retry.Config{Attempts: 1}),
				wardenhttp.RetryConfig{Base: rt, AttemptTimeout: 2 * time.Second, HedgeAfter: time.Second})
		},
		"a compartment": func(rt http.RoundTripper) http.RoundTripper {
			return sentIn(t, compartment(t, bulkhead.CompartmentConfig{Timeout: 2 * time.Second}), rt)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			newHandler(t, newGuard(t, 1, 0), func(_ http.ResponseWriter, r *http.Request) {
				go func() { _, _ = io.Copy(io.Discard, r.Body) }()
				req := must(http.NewRequestWithContext(r.Context(), http.MethodPut, "http://store", strings.NewReader("small")))(t)
				if _, err := through(hung).RoundTrip(req); errors.Is(err, context.Canceled) || !timedOut(err) {
					t.Errorf("H14: %s: %v", name, err)
				}
			}).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", dawdling{time.Minute}))
			time.Sleep(time.Hour)
		})
	}
}

// bursts is a body that comes at once for a while, while somebody else computes, and then no more.
type bursts struct{ left int }

func (b *bursts) Read(p []byte) (int, error) {
	if b.left--; b.left < 0 {
		time.Sleep(time.Hour)
	}
	return copy(p, "fast"), nil
}

// What a client did long before says nothing: one who stalls after a long upload is what an upstream loses patience for.
func TestAClientThatStallsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fuse{}
		rt := sentIn(t, compartment(t, bulkhead.CompartmentConfig{Breaker: b}), roundTrip(func(r *http.Request) (*http.Response, error) {
			lost := time.NewTimer(3 * time.Second)
			go func() {
				for {
					if _, err := r.Body.Read(make([]byte, 4)); err != nil {
						return
					}
					lost.Reset(3 * time.Second)
					time.Sleep(100 * time.Millisecond) // it writes what it has
				}
			}()
			<-lost.C
			return nil, errors.New("broken pipe")
		}))
		newHandler(t, newGuard(t, 1, 0), func(_ http.ResponseWriter, r *http.Request) {
			if _, err := rt.RoundTrip(r.Clone(r.Context())); !errors.Is(err, context.Canceled) {
				t.Errorf("H14: %v", err)
			}
		}).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", &bursts{100}))
		if len(b.told) != 1 || !bulkhead.IsExcluded(b.told[0]) {
			t.Errorf("H14: the breaker was told %v", b.told)
		}
		time.Sleep(2 * time.Hour)
	})
}

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

// A function in a compartment that waits for a client is excused if others got an answer meanwhile: nobody knows for whom it waits.
func TestAFunctionThatWaitsForAClient(t *testing.T) {
	for _, timeout := range []time.Duration{0, 4 * time.Second} {
		for _, others := range []bool{false, true} {
			for _, waits := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					b := &fuse{}
					c := compartment(t, bulkhead.CompartmentConfig{Guaranteed: 2, Breaker: b, Timeout: timeout})
					do := func(ctx context.Context, fn func() error) {
						_, _ = bulkhead.Do(ctx, c, func(context.Context) (int, error) { return 0, fn() })
					}
					go func() {
						time.Sleep(time.Second)
						if others {
							do(t.Context(), func() error { return nil })
						}
					}()
					newHandler(t, newGuard(t, 1, 0), func(_ http.ResponseWriter, r *http.Request) {
						do(r.Context(), func() error {
							if waits {
								_, _ = io.Copy(io.Discard, r.Body)
							} else {
								time.Sleep(5 * time.Second)
							}
							return errors.New("its time was up")
						})
					}).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", pausing{}))
					told := b.told[len(b.told)-1]
					if excused := bulkhead.IsExcluded(told); told == nil || excused != (others && waits) {
						t.Errorf("H14: others answered %t, waits %t, Timeout %v: the breaker was told %v", others, waits, timeout, told)
					}
					time.Sleep(time.Minute)
				})
			}
		}
	}
}

// pausing is nothing, after a while.
type pausing struct{}

func (pausing) Read([]byte) (int, error) { return dawdling{5 * time.Second}.Read(nil) }
