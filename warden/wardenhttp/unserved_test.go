// SPDX-License-Identifier: Apache-2.0

// Who left without an answer is counted (Q22, H30); who ends a stream, or is served by a task that he did not see end, is not. Nor is
// a failure (Q23, H31).

package wardenhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func TestUnserved(t *testing.T) {
	gone := func(r *http.Request) { <-r.Context().Done() }
	for name, c := range map[string]struct {
		cfg  wardenhttp.Config
		next func(http.ResponseWriter, *http.Request)
		want uint64
	}{
		"answered":               {next: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }},
		"answered with an error": {next: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }},
		"nothing to say":         {next: func(http.ResponseWriter, *http.Request) {}},
		"server-sent events": {next: func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "data: 1\n\n")
			gone(r)
			_, _ = io.WriteString(w, "data: 2\n\n")
		}},
		"a stream without a word, its header sent": {next: func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			gone(r)
		}},
		"a long poll that says nothing, its header sent": {next: func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusNoContent)
			gone(r)
		}},
		"left":                         {next: func(_ http.ResponseWriter, r *http.Request) { gone(r) }, want: 1},
		"left, and then an answer":     {next: func(w http.ResponseWriter, r *http.Request) { gone(r); _, _ = io.WriteString(w, "ok") }, want: 1},
		"left, and then a status":      {next: func(w http.ResponseWriter, r *http.Request) { gone(r); w.WriteHeader(http.StatusNoContent) }, want: 1},
		"left, and then an error":      {next: func(w http.ResponseWriter, r *http.Request) { gone(r); w.WriteHeader(http.StatusBadGateway) }, want: 1},
		"time is up":                   {cfg: wardenhttp.Config{Timeout: time.Second}, next: func(_ http.ResponseWriter, r *http.Request) { gone(r) }, want: 1},
		"time is up, buffered":         {cfg: wardenhttp.Config{Timeout: time.Second, Buffered: true}, next: func(_ http.ResponseWriter, r *http.Request) { gone(r) }, want: 1},
		"time is up, but it is served": {cfg: wardenhttp.Config{Timeout: time.Second}, next: func(w http.ResponseWriter, r *http.Request) { gone(r); _, _ = io.WriteString(w, "ok") }},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := must(warden.New(warden.Config{Limiter: limiter.Config{Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 1}}}))(t)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				time.Sleep(2 * time.Second)
				cancel()
			}()
			must(wardenhttp.New(w, c.cfg))(t).Handler(http.HandlerFunc(c.next)).
				ServeHTTP(httptest.NewRecorder(), newRequest().WithContext(ctx))
			cancel()
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if s := w.Limiter().Stats(); s.Abandoned != c.want || s.Executed != 1 || s.Running != 0 {
				t.Errorf("H30: %s: %d abandoned, want %d: %+v", name, s.Abandoned, c.want, s.Tally)
			}
		})
	}
}

// An upgraded connection that its client closes is no task without an answer.
func TestAnUpgradeIsServed(t *testing.T) {
	w := must(warden.New(warden.Config{}))(t)
	done := make(chan struct{})
	s := startServer(t, must(wardenhttp.New(w, wardenhttp.Config{}))(t).Handler(
		http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			c, buf, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			go func() {
				defer close(done)
				defer c.Close()
				_, _ = buf.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
				_ = buf.Flush()
				_, _ = io.Copy(io.Discard, buf) // until the client is gone
			}()
		})), false)
	req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody))(t)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "x")
	resp := must(s.Client().Do(req))(t)
	resp.Body.Close()
	await(t, "the end of the connection", done)
	if s := w.Limiter().Stats(); s.Abandoned != 0 || s.Executed != 1 {
		t.Errorf("H30: %+v", s.Tally)
	}
}

// Work that goes on upstream for a client that has left is measured to its end, and its client was not served.
func TestDetachedWorkServesNobody(t *testing.T) {
	for name, leaves := range map[string]bool{"the client waits": false, "the client leaves": true} {
		synctest.Test(t, func(t *testing.T) {
			a := new(auditor)
			w := must(warden.New(warden.Config{
				Controller: a, Limiter: limiter.Config{Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 1}},
			}))(t)
			rt := wardenhttp.Detach(roundTrip(func(*http.Request) (*http.Response, error) {
				time.Sleep(2 * time.Second)
				return respond(http.StatusOK, newPayload("x")), nil
			}))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if leaves {
				time.AfterFunc(time.Second, cancel)
			}
			must(wardenhttp.New(w, wardenhttp.Config{}))(t).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				resp, err := rt.RoundTrip(newRequest().WithContext(r.Context()))
				if errors.Is(err, context.Canceled) {
					w.WriteHeader(http.StatusBadGateway)
					return
				}
				_, _ = io.Copy(w, resp.Body)
				resp.Body.Close()
			})).ServeHTTP(httptest.NewRecorder(), newRequest().WithContext(ctx))
			time.Sleep(3 * time.Second)
			synctest.Wait()
			w.SampleIfDue()
			want := uint64(0)
			if leaves {
				want = 1
			}
			if s := w.Limiter().Stats(); s.Abandoned != want || *a != (auditor{counted: 1}) {
				t.Errorf("H30: %s: %+v, measured %+v", name, s.Tally, *a)
			}
		})
	}
}
