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
	"net/http/httputil"
	"net/url"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// A client that leaves is answered by nobody, and the upstream goes on: its slot stays with it, and nobody else gets one, until
// it is done.
func TestProxyKeepsTheSlotOfItsUpstream(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		begun, finish := make(chan struct{}, 3), make(chan struct{})
		// it never looks at its client
		upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			begun <- struct{}{}
			<-finish
			_, _ = io.WriteString(w, "done")
		}))
		t.Cleanup(upstream.Close)
		release := sync.OnceFunc(func() { close(finish) })
		t.Cleanup(release)
		g := newGuard(t, 1, 0)
		base := &http.Transport{}
		t.Cleanup(base.CloseIdleConnections)
		to, err := url.Parse(upstream.URL)
		if err != nil {
			t.Fatal(err)
		}
		proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
		}, Transport: wardenhttp.Detach(base)}
		proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) { wardenhttp.WriteError(w, nil, err) }
		left := make(chan struct{}, 1) // the proxy's handler is done
		h := newHandler(t, g, func(w http.ResponseWriter, r *http.Request) {
			defer func() { left <- struct{}{} }()
			proxy.ServeHTTP(w, r)
		})
		s := serve(h)

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		asks := make(chan error, 1)
		go func() {
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, http.NoBody)
			resp, err := s.Client().Do(req)
			if err == nil {
				resp.Body.Close()
			}
			asks <- err
		}()
		await(t, "upstream", begun)
		cancel()
		if err := <-asks; !errors.Is(err, context.Canceled) {
			t.Fatalf("a client that left: %v", err)
		}
		await(t, "the end of the handler", left)
		if g.wantInFlight(t, "H23: while the upstream works for nobody", 1); t.Failed() {
			return // the next request would reach the upstream and wait
		}
		wantStatus(t, s, http.StatusServiceUnavailable)
		release()
		g.wantEmpty(t)
		wantStatus(t, s, http.StatusOK)
		await(t, "the end of the handler", left)
		g.wantEmpty(t)
	})
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
