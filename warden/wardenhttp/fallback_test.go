// SPDX-License-Identifier: Apache-2.0

// Fallbacks of the middleware (B9): when they answer, outside of what, and what of those that block or panic.

package wardenhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// degraded is how a compartment counts fallbacks.
type degraded struct {
	Degraded, Failed, Rejected uint64
	InFlight                   int
}

func fallbacksOf(c *bulkhead.Compartment) degraded {
	s := c.Snapshot()
	return degraded{s.Degraded, s.FallbacksFailed, s.FallbacksRejected, s.FallbacksInFlight}
}

// On real servers: a rejected request, and one whose time is up, are answered by the fallback, without a slot of the compartment.
func TestFallbackAnswers(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		for name, c := range map[string]struct {
			buffered, own bool // is the timeout: the Config's
			cause         error
		}{
			"the compartment's Timeout":           {false, false, bulkhead.ErrTimeout},
			"the compartment's Timeout, buffered": {true, false, bulkhead.ErrTimeout},
			"the Config's":                        {false, true, context.DeadlineExceeded},
			"the Config's, buffered":              {true, true, context.DeadlineExceeded},
		} {
			of, cfg := bulkhead.CompartmentConfig{Guaranteed: 2}, wardenhttp.Config{Buffered: c.buffered}
			if c.own {
				cfg.Timeout = 200 * time.Millisecond
			} else {
				of.Timeout = 200 * time.Millisecond
			}
			shop := compartment(t, of)
			cfg.Compartment = in(shop)
			var causes []error
			inFlight := -1
			cfg.Fallback = func(w http.ResponseWriter, r *http.Request, cause error) bool {
				causes, inFlight = append(causes, cause), shop.Snapshot().InFlight
				if r.Context().Err() != nil {
					t.Error("B9: the fallback's context has ended")
				}
				_, err := io.WriteString(w, "cached")
				return err == nil
			}
			// Buffered, a handler that goes on keeps its slot; otherwise the fallback comes when it has returned.
			stay := make(chan struct{})
			s := serve(handle(t, nil, cfg, func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
				if c.buffered {
					<-stay
				}
			}))
			check := func(held, n int, cause error) {
				t.Helper()
				resp := send(t, s.Client(), http.MethodPost, s.URL, strings.NewReader("body"))
				text := must(io.ReadAll(resp.Body))(t)
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK || resp.Header.Get("Warden-Rejected") != "" || resp.Header.Get("X-Request-Id") == "" {
					t.Errorf("B9: %s: %s %v", name, resp.Status, resp.Header)
				}
				if string(text) != "cached" || inFlight != held || len(causes) != n || !errors.Is(causes[n-1], cause) {
					t.Fatalf("B9: %s: %q, %d in flight, %v", name, text, inFlight, causes)
				}
			}
			check(number(c.buffered), 1, c.cause)
			close(stay)
			fill(t, shop, 2)
			check(2, 2, decision.ErrRejected)
			if diff := cmp.Diff(degraded{Degraded: 2}, fallbacksOf(shop)); diff != "" {
				t.Errorf("B9: %s (-want +got)\n%s", name, diff)
			}
		}
	})
}

// fill takes n slots, once they are free.
func fill(t *testing.T, c *bulkhead.Compartment, n int) {
	t.Helper()
	hangs := time.After(patience)
	for n > 0 {
		_, p, err := c.Acquire(context.Background())
		if err == nil {
			t.Cleanup(func() { p.Release(nil) })
			n--
			continue
		}
		select {
		case <-time.After(time.Millisecond):
		case <-hangs:
			t.Fatal(err)
		}
	}
}

// A fallback that declines, panics or blocks, and a client that left: nobody waits for one but its own client, and all are
// counted.
func TestFallbacksThatDoNot(t *testing.T) {
	blocks := func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return false }
	for name, c := range map[string]struct {
		behave func(w http.ResponseWriter, r *http.Request) bool
		status int // 503: the middleware's own
		after  time.Duration
		want   degraded
	}{
		"declines": {func(http.ResponseWriter, *http.Request) bool { return false }, 503, 0, degraded{Failed: 1}},
		"writes and declines": {func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusTeapot)
			return false
		}, 418, 0, degraded{Degraded: 1}},
		"panics": {func(http.ResponseWriter, *http.Request) bool { panic("on purpose") }, 200, 0, degraded{Failed: 1}},
		"blocks": {blocks, 503, 10 * time.Second, degraded{Failed: 1, Rejected: 1}},
		"left": {func(http.ResponseWriter, *http.Request) bool {
			t.Error("B9: called for a client that left")
			return true
		}, 499, 0, degraded{}},
	} {
		bubble(t, name, func(t *testing.T) {
			shop := compartment(t, bulkhead.CompartmentConfig{MaxFallback: 1})
			fill(t, shop, 1)
			h := handle(t, nil, wardenhttp.Config{
				Compartment: in(shop),
				Fallback:    func(w http.ResponseWriter, r *http.Request, _ error) bool { return c.behave(w, r) },
			}, func(http.ResponseWriter, *http.Request) { t.Error("called") })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if name == "left" {
				cancel()
			}
			began, rec := time.Now(), httptest.NewRecorder()
			var panicked any
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				defer func() { panicked = recover() }()
				h.ServeHTTP(rec, newRequest().WithContext(ctx))
			}()
			synctest.Wait()
			if c.after > 0 { // beside one that blocks, nobody waits
				if got := recorded(h, newRequest()); got.Code != 503 || time.Since(began) != 0 {
					t.Errorf("B9: beside it: %d %s", got.Code, got.Body)
				}
			}
			<-ended
			own := rec.Header().Get("Warden-Rejected") == "queue_overflow"
			if rec.Code != c.status || time.Since(began) != c.after || (panicked != nil) != (name == "panics") || own != (c.status == 503) {
				t.Errorf("B9: %d %s after %v, panicked %v", rec.Code, rec.Body, time.Since(began), panicked)
			}
			if diff := cmp.Diff(c.want, fallbacksOf(shop)); diff != "" {
				t.Errorf("B9: (-want +got)\n%s", diff)
			}
		})
	}
}

// A client that does not read its fallback makes room for those of others in time, also where a warden with room rules the compartment.
func TestASlowClientKeepsNoFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := compartment(t, bulkhead.CompartmentConfig{MaxFallback: 1, Timeout: time.Second})
		h := newGuard(t, 10, 0).handle(t, wardenhttp.Config{
			Compartment: in(c),
			Fallback: func(w http.ResponseWriter, _ *http.Request, _ error) bool {
				_, err := io.WriteString(w, strings.Repeat("cached", 10_000))
				return err == nil
			},
		}, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		say(connTo(t, h), "GET / HTTP/1.1\r\nHost: x\r\n\r\n") // and reads nothing
		time.Sleep(2 * time.Second)
		if diff := cmp.Diff(degraded{InFlight: 1}, fallbacksOf(c)); diff != "" {
			t.Errorf("B9: while its client does not read (-want +got)\n%s", diff)
		}
		time.Sleep(time.Minute)
		if n := fallbacksOf(c).InFlight; n > 0 {
			t.Errorf("B9: %d fallbacks after a minute", n)
		}
	})
}
