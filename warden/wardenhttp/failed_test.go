// SPDX-License-Identifier: Apache-2.0

// A request that ends with an error of the service is counted (Q23, H31), here and where it is sent from.

package wardenhttp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// Of any handlers, those fail that answer with 500 or more, or do not return, while their clients wait.
func TestPropertyFailed(t *testing.T) {
	ends := map[string]func(){
		"returns": func() {}, "panics": func() { panic("on purpose") }, "aborts": func() { panic(http.ErrAbortHandler) },
	}
	rapid.Check(t, func(rt *rapid.T) {
		w := must(warden.New(warden.Config{}))(t)
		want := uint64(0)
		for range rapid.IntRange(1, 20).Draw(rt, "requests") {
			status := rapid.SampledFrom([]int{0, 200, 204, 302, 400, 404, 429, 499, 500, 501, 503, 504, 599}).Draw(rt, "status")
			way := rapid.SampledFrom([]string{"returns", "panics", "aborts"}).Draw(rt, "way")
			leaves := rapid.Bool().Draw(rt, "leaves")
			buffered := rapid.Bool().Draw(rt, "buffered")
			ctx, cancel := context.WithCancel(t.Context())
			func() {
				defer func() { _ = recover() }()
				must(wardenhttp.New(w, wardenhttp.Config{Buffered: buffered}))(t).Handler(
					http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						if leaves {
							cancel()
						}
						if status > 0 {
							w.WriteHeader(status)
						}
						ends[way]()
					})).ServeHTTP(httptest.NewRecorder(), newRequest().WithContext(ctx))
			}()
			cancel()
			if !leaves && (status >= 500 || way != "returns") {
				want++
			}
		}
		for w.Limiter().Stats().Running > 0 { // buffered, the client has its answer and the handler goes on
			runtime.Gosched()
		}
		if s := w.Limiter().Stats(); s.Failed != want {
			rt.Fatalf("H31: %d failed, want %d: %+v", s.Failed, want, s.Tally)
		}
	})
}

// A request that is sent fails with its answer, or for want of one, unless its sender gives it up.
func TestSentRequestsFail(t *testing.T) {
	broken := errors.New("connection refused")
	for name, c := range map[string]struct {
		status int
		err    error
		gone   bool
		failed uint64
	}{
		"answered": {status: 200}, "not found": {status: 404}, "too many": {status: 429},
		"an error": {status: 500, failed: 1}, "unavailable": {status: 503, failed: 1},
		"no answer": {err: broken, failed: 1}, "given up": {err: broken, gone: true},
	} {
		w := must(warden.New(warden.Config{}))(t)
		ctx, cancel := context.WithCancel(t.Context())
		rt := must(wardenhttp.NewTransport(w, wardenhttp.TransportConfig{Base: roundTrip(
			func(*http.Request) (*http.Response, error) {
				if c.gone {
					cancel()
				}
				if c.err != nil {
					return nil, c.err
				}
				return respond(c.status, newPayload("x")), nil
			})}))(t)
		if resp, err := rt.RoundTrip(newRequest().WithContext(ctx)); err == nil {
			resp.Body.Close()
		}
		cancel()
		if s := w.Limiter().Stats(); s.Failed != c.failed || s.Executed != 1 {
			t.Errorf("H31: %s: %d failed, want %d: %+v", name, s.Failed, c.failed, s.Tally)
		}
	}
}
