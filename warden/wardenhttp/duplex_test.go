// SPDX-License-Identifier: Apache-2.0

// Answers through Detach that come before the end of the request, or end after it.

package wardenhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/wardenhttp"
)

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
			resp, err := rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
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
			newMiddleware(t, newGuard(t, 1, 0), cfg).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				err := inquire(r.Context(), client, u.URL, http.NoBody)
				if errors.Is(err, context.DeadlineExceeded) != mine || errors.Is(err, context.Canceled) == mine {
					t.Errorf("H14: the service's own time: %t; the error: %v", mine, err)
				}
			})).ServeHTTP(httptest.NewRecorder(), req)
		}
	})
}
