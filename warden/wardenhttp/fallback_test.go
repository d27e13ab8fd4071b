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
	"sync/atomic"
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
		for _, buffered := range []bool{false, true} {
			for _, of := range []string{"the compartment's Timeout", "the Config's"} {
				c := compartment(t, bulkhead.CompartmentConfig{Guaranteed: 2})
				cfg := wardenhttp.Config{Buffered: buffered}
				timeout := 200 * time.Millisecond
				if of == "the Config's" {
					cfg.Timeout = timeout
				} else {
					c = compartment(t, bulkhead.CompartmentConfig{Guaranteed: 2, Timeout: timeout})
				}
				cfg.Compartment = in(c)
				var causes []error
				inFlight := -1
				cfg.Fallback = func(w http.ResponseWriter, r *http.Request, cause error) bool {
					causes, inFlight = append(causes, cause), c.Snapshot().InFlight
					if r.Context().Err() != nil {
						t.Error("B9: the fallback's context has ended")
					}
					_, err := io.WriteString(w, "cached")
					return err == nil
				}
				// Buffered, a handler that goes on keeps its slot; otherwise the fallback comes when it has returned.
				stay, held := make(chan struct{}), 0
				if buffered {
					held = 1
				}
				s := serve(inCompartment(t, cfg, func(_ http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					<-r.Context().Done()
					if buffered {
						<-stay
					}
				}))
				post := func() string {
					req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, strings.NewReader("body"))
					if err != nil {
						t.Fatal(err)
					}
					resp, err := s.Client().Do(req)
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					if resp.StatusCode != http.StatusOK || resp.Header.Get("Warden-Rejected") != "" ||
						resp.Header.Get("X-Request-Id") == "" {
						t.Errorf("B9: %d %v", resp.StatusCode, resp.Header)
					}
					text, err := io.ReadAll(resp.Body)
					if err != nil {
						t.Error(err)
					}
					return string(text)
				}
				if got := post(); got != "cached" || inFlight != held || len(causes) != 1 ||
					!errors.Is(causes[0], context.DeadlineExceeded) {
					t.Fatalf("B9: %s, buffered %t: %q, in flight %d, %v", of, buffered, got, inFlight, causes)
				}
				if of != "the Config's" && !errors.Is(causes[0], bulkhead.ErrTimeout) {
					t.Errorf("B9: %v", causes[0])
				}
				close(stay)
				fill(t, c, 2)
				if got := post(); got != "cached" || len(causes) != 2 || !errors.Is(causes[1], decision.ErrRejected) {
					t.Errorf("B9: %s, buffered %t: %q, %v", of, buffered, got, causes)
				}
				if diff := cmp.Diff(degraded{Degraded: 2}, fallbacksOf(c)); diff != "" {
					t.Errorf("B9: %s, buffered %t (-want +got)\n%s", of, buffered, diff)
				}
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
	synctest.Test(t, func(t *testing.T) {
		c := compartment(t, bulkhead.CompartmentConfig{MaxFallback: 1})
		_, held, err := c.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer held.Release(nil)
		var behave func(w http.ResponseWriter, r *http.Request) bool
		h := inCompartment(t, wardenhttp.Config{
			Compartment: in(c),
			Fallback:    func(w http.ResponseWriter, r *http.Request, _ error) bool { return behave(w, r) },
		}, func(http.ResponseWriter, *http.Request) { t.Error("called") })
		ask := func(ctx context.Context) *httptest.ResponseRecorder {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, newRequest().WithContext(ctx))
			return rec
		}
		rejected := func(rec *httptest.ResponseRecorder) bool {
			return rec.Code == http.StatusServiceUnavailable && rec.Header().Get("Warden-Rejected") == "queue_overflow"
		}
		want := degraded{}
		check := func(when string) {
			t.Helper()
			if diff := cmp.Diff(want, fallbacksOf(c)); diff != "" {
				t.Errorf("B9: %s (-want +got)\n%s", when, diff)
			}
		}

		behave = func(http.ResponseWriter, *http.Request) bool { return false }
		if rec := ask(t.Context()); !rejected(rec) {
			t.Errorf("B9: declined: %d %s", rec.Code, rec.Body)
		}
		want.Failed++
		check("declined")

		behave = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusTeapot); return false }
		if rec := ask(t.Context()); rec.Code != http.StatusTeapot || rec.Body.Len() != 0 {
			t.Errorf("B9: written and declined: %d %s", rec.Code, rec.Body)
		}
		want.Degraded++
		check("written and declined")

		behave = func(http.ResponseWriter, *http.Request) bool { panic("on purpose") }
		func() {
			defer func() {
				if v := recover(); v != "on purpose" {
					t.Errorf("B9: recovered %v", v)
				}
			}()
			ask(t.Context())
		}()
		want.Failed++
		check("panicked")

		left, cancel := context.WithCancel(t.Context())
		cancel()
		behave = func(http.ResponseWriter, *http.Request) bool {
			t.Error("B9: called for a client that left")
			return true
		}
		ask(left)
		check("left")

		behave = func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return false }
		first := make(chan *httptest.ResponseRecorder)
		began := time.Now()
		go func() { first <- ask(t.Context()) }()
		synctest.Wait()
		if rec := ask(t.Context()); !rejected(rec) || time.Since(began) != 0 {
			t.Errorf("B9: beside one that blocks: %d %s", rec.Code, rec.Body)
		}
		want.InFlight, want.Rejected = 1, 1
		check("blocks")
		if rec := <-first; !rejected(rec) || time.Since(began) != 10*time.Second {
			t.Errorf("B9: after Grace: %d %s", rec.Code, rec.Body)
		}
		want.InFlight = 0
		want.Failed++
		check("blocked")
	})
}

// A fallback that blocks until Grace is over leaves its connection to the next requests.
func TestTheConnectionOutlivesAFallback(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		for _, buffered := range []bool{false, true} {
			var asked atomic.Int32
			c := compartment(t, bulkhead.CompartmentConfig{Guaranteed: 3, Timeout: 100 * time.Millisecond})
			s := serve(inCompartment(t, wardenhttp.Config{
				Compartment: in(c), Buffered: buffered, Grace: 100 * time.Millisecond,
				Fallback: func(_ http.ResponseWriter, r *http.Request, _ error) bool { <-r.Context().Done(); return false },
			}, func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if asked.Add(1) == 1 {
					<-r.Context().Done()
				}
			}))
			for i, want := range []int{http.StatusGatewayTimeout, http.StatusOK, http.StatusOK} {
				if status, text, err := do(t, s.Client().Transport, http.MethodPost, s.URL, "body"); status != want ||
					err != nil {
					t.Errorf("B9: buffered %t: request %d: %d %s, %v; want %d", buffered, i, status, text, err, want)
				}
			}
			if diff := cmp.Diff(degraded{Failed: 1}, fallbacksOf(c)); diff != "" {
				t.Errorf("B9: buffered %t (-want +got)\n%s", buffered, diff)
			}
		}
	})
}

func TestFallbackNeedsACompartment(t *testing.T) {
	_, err := wardenhttp.New(newGuard(t, 1, 0).Warden, wardenhttp.Config{
		Fallback: func(http.ResponseWriter, *http.Request, error) bool { return false },
	})
	if err == nil || !strings.Contains(err.Error(), "wardenhttp.Config.Fallback") {
		t.Errorf("B9: %v", err)
	}
}
