// SPDX-License-Identifier: Apache-2.0

// What a client has made wrong, in its body or its headers, is its own mistake, whoever finds it (H14): no failure of the service, nor of
// what it asks.

package wardenhttp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/retry"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

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
	of := sentOn{guard: newGuard(t, 2, 0), fuse: &fuse{}, caller: newCaller(t, retry.Config{Attempts: 1})}
	base, c := upstream.Client().Transport, compartment(t, bulkhead.CompartmentConfig{Guaranteed: 2, Breaker: of.fuse})
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
		"the handler's own, after the client's": {"whole", func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			r.Body, r.ContentLength = io.NopCloser(iotest.ErrReader(errors.New("broken"))), 5
		}, http.StatusBadGateway},
		"somebody else's, who is late": {"", func(_ http.ResponseWriter, r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(iotest.ErrReader(context.DeadlineExceeded)), 5
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

// A host that is none is the mistake of whoever has named it; in work of the service's own it is no end of a context.
func TestAHostThatIsNone(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		upstream := startServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), http2)
		b := &fuse{}
		rt := sentIn(t, compartment(t, bulkhead.CompartmentConfig{Breaker: b}), upstream.Client().Transport)
		ask := func(ctx context.Context, served bool) {
			req := must(http.NewRequestWithContext(ctx, http.MethodGet, upstream.URL, http.NoBody))(t)
			req.Host = "xn--a\u00e4"
			_, err := rt.RoundTrip(req)
			if told := b.told[len(b.told)-1]; err == nil || errors.Is(err, context.Canceled) != served || !bulkhead.IsExcluded(told) {
				t.Errorf("H14: HTTP/2 %t, served %t: %v, and the breaker was told %v", http2, served, err, told)
			}
		}
		newHandler(t, newGuard(t, 1, 0), func(_ http.ResponseWriter, r *http.Request) {
			ask(r.Context(), true)
		}).ServeHTTP(httptest.NewRecorder(), newRequest())
		ask(t.Context(), false)
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
