// SPDX-License-Identifier: Apache-2.0

// Upstreams that go on when nobody waits for them: a reverse proxy on real connections, and all orders in which handler, upstream
// and grace can end.

package wardenhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// A slot is one request at the upstream, whatever hedges above.
func TestDetachSendsNoHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		under := wardenhttp.Detach(roundTrip(func(*http.Request) (*http.Response, error) {
			sent++
			time.Sleep(3 * time.Second)
			return respond(http.StatusOK, http.NoBody), nil
		}))
		rt := newRetry(t, newCaller(t, generous), wardenhttp.RetryConfig{HedgeAfter: time.Second, Base: roundTrip(under.RoundTrip)})
		recorded(newHandler(t, newGuard(t, 1, 0), func(_ http.ResponseWriter, r *http.Request) {
			if _, err := rt.RoundTrip(newRequest().WithContext(r.Context())); err != nil || sent != 1 {
				t.Errorf("H33: %d sent, %v", sent, err)
			}
		}), newRequest())
	})
}

// A client may send all of a body, as its length says, and not its end: the upstream has it, and works.
func TestABodyIsWholeAsItsLengthSays(t *testing.T) {
	for i, want := range []int{0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1} {
		synctest.Test(t, func(t *testing.T) {
			sent, trailers := i%6, i/6 > 0
			g := newGuard(t, 1, 0)
			rt := wardenhttp.Detach(roundTrip(func(r *http.Request) (*http.Response, error) {
				if _, _ = io.ReadFull(r.Body, make([]byte, sent)); sent == 5 && !trailers { // net/http looks for more
					if n, err := r.Body.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
						t.Errorf("H23: %d bytes more, %v", n, err)
					}
				}
				select {
				case <-time.After(time.Second):
				case <-r.Context().Done():
				}
				return nil, io.ErrUnexpectedEOF
			}))
			req := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(strings.NewReader("whole"[:sent]), dawdling{time.Hour}))
			if req.ContentLength = 5; trailers {
				req.Trailer = http.Header{"X": nil} // which do not come either
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			recorded(newHandler(t, g, func(_ http.ResponseWriter, r *http.Request) {
				if _, err := rt.RoundTrip(r.Clone(r.Context())); err == nil {
					t.Error("H23: answered")
				}
			}), req.WithContext(ctx))
			synctest.Wait()
			g.wantInFlight(t, fmt.Sprintf("H23: the upstream has %d of 5 bytes", sent), want)
			time.Sleep(time.Second)
			g.wantEmpty(t)
		})
	}
}

// In whatever order client, handler, upstream and grace end: the slot is released when handler and upstream are done, or grace
// has ended the upstream; what then counts is how long the upstream took, or that it was abandoned.
func TestPropertyDetached(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		second := func(what string, most int) time.Duration {
			return time.Duration(2*rapid.IntRange(0, most).Draw(rt, what)+1) * time.Second
		}
		upstream, client := second("upstream", 20), second("client", 10)+time.Millisecond
		fails, heeds := rapid.Bool().Draw(rt, "upstream fails"), rapid.Bool().Draw(rt, "upstream notices cancellation")
		lingers := time.Duration(0)
		if rapid.Bool().Draw(rt, "handler goes on") {
			lingers = second("for", 10) + 2*time.Millisecond
		}
		layers := rapid.IntRange(1, 2).Draw(rt, "middlewares")
		how := rapid.SampledFrom([]string{"returns", "panics", "calls Goexit"}).Draw(rt, "upstream's transport")
		const grace = 10 * time.Second
		a, wrong := new(auditor), []string(nil)
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			until := func(at time.Duration, w *warden.Warden, want int) {
				time.Sleep(at - time.Since(began))
				synctest.Wait()
				if got := w.Limiter().Stats().Running; got != want {
					wrong = append(wrong, fmt.Sprintf("%d in flight after %v, want %d", got, at, want))
				}
			}
			var wardens []*warden.Warden
			base := roundTrip(func(r *http.Request) (*http.Response, error) {
				var stop <-chan struct{}
				if heeds {
					stop = r.Context().Done()
				}
				select {
				case <-time.After(upstream):
				case <-stop:
					return nil, r.Context().Err()
				}
				switch {
				case how == "panics":
					panic("on purpose")
				case how == "calls Goexit":
					runtime.Goexit()
				case fails:
					return nil, errors.New("on purpose")
				}
				return respond(http.StatusOK, newPayload("x")), nil
			})
			rt := wardenhttp.Detach(base)
			var returned time.Duration
			var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				resp, err := rt.RoundTrip(newRequest().WithContext(r.Context()))
				returned = time.Since(began)
				if err == nil {
					_, _ = io.Copy(w, resp.Body)
					resp.Body.Close()
				} else {
					w.WriteHeader(http.StatusBadGateway)
				}
				time.Sleep(lingers)
			})
			for i := range layers {
				w := must(warden.New(warden.Config{
					Controller: []*auditor{a, new(auditor)}[i],
					Limiter:    limiter.Config{Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 1}},
				}))(t)
				wardens = append(wardens, w)
				h = must(wardenhttp.New(w, wardenhttp.Config{}))(t).Handler(h)
			}
			ctx, cancel := context.WithTimeout(t.Context(), client)
			defer cancel()
			go h.ServeHTTP(httptest.NewRecorder(), newRequest().WithContext(ctx))
			defer func() {
				if want := min(upstream, client); returned != want {
					wrong = append(wrong, fmt.Sprintf("the answer or the error came after %v, want %v", returned, want))
				}
			}()
			handled := min(upstream, client) + lingers
			end := max(min(upstream, client+grace), handled)
			for _, w := range wardens {
				until(end-time.Millisecond, w, 1)
			}
			for _, w := range wardens {
				until(end, w, 0)
			}
			time.Sleep(time.Minute) // until the upstream is done, whatever became of its request
			wardens[0].SampleIfDue()
			want := auditor{counted: 1}
			if upstream > client+grace || upstream < client && client < handled && (fails || how != "returns") {
				want = auditor{abandoned: 1}
			}
			if *a != want {
				wrong = append(wrong, fmt.Sprintf("%+v, want %+v", *a, want))
			}
		})
		if wrong != nil {
			rt.Fatalf("H23: %q", wrong)
		}
	})
}

// A client that waits for the answer before it sends the rest of its body, as a two-way stream does, gets it.
func TestDetachedAnswerWaitsForNoBody(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		u := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			_ = rc.EnableFullDuplex() // an error: it is HTTP/2
			_ = rc.Flush()
			_, _ = io.Copy(w, r.Body)
		}))
		rt := wardenhttp.Detach(u.Client().Transport)
		g := newGuard(t, 1, 0)
		newHandler(t, g, func(_ http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), patience)
			defer cancel()
			rest, answered := io.Pipe()
			context.AfterFunc(ctx, func() { _ = answered.CloseWithError(ctx.Err()) }) // at the latest
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, u.URL, rest)
			resp := must(rt.RoundTrip(req))(t)
			defer resp.Body.Close()
			if ctx.Err() != nil {
				t.Error("H23: the answer waited for the rest of the request")
			}
			go func() {
				_, _ = io.WriteString(answered, "the rest")
				_ = answered.Close()
			}()
			if got, err := io.ReadAll(resp.Body); string(got) != "the rest" || err != nil {
				t.Errorf("H23: %q, %v", got, err)
			}
		}).ServeHTTP(httptest.NewRecorder(), newRequest())
		g.wantEmpty(t)
	})
}

// An upstream that hangs in the middle of its answer has failed when the service's own time is up, and not when a stranger's is.
func TestDetachedAnswerSaysWhyItEnded(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		u := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}))
		client := &http.Client{Transport: wardenhttp.Detach(u.Client().Transport)}
		const own, strangers = 100 * time.Millisecond, "100"
		for _, mine := range []bool{true, false} {
			cfg, req := wardenhttp.Config{Timeout: own}, newRequest()
			if !mine {
				cfg.Timeout = 0
				req.Header.Set("Warden-Timeout", strangers)
			}
			newGuard(t, 1, 0).handle(t, cfg, func(_ http.ResponseWriter, r *http.Request) {
				err := inquire(r.Context(), client, u.URL, http.NoBody)
				if errors.Is(err, context.DeadlineExceeded) != mine || errors.Is(err, context.Canceled) == mine {
					t.Errorf("H14: the service's own time: %t; the error: %v", mine, err)
				}
			}).ServeHTTP(httptest.NewRecorder(), req)
		}
	})
}
