// SPDX-License-Identifier: Apache-2.0

// The throttle pays for overload only (H25): a broken path of a host throttles nobody who calls the others.

package wardenhttp_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/retry"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// A path of a host is broken and gets 100 requests a second; two others get ten each, for ten seconds.
func TestABrokenPathThrottlesNobodyElse(t *testing.T) {
	says := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	}
	overloaded := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Warden-Rejected", "pressure_high")
		w.WriteHeader(http.StatusGatewayTimeout)
	}
	hangs := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	cut := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	none := func(n int) bool { return n == 0 }
	most := func(n int) bool { return n > 500 }
	for name, c := range map[string]struct {
		broken, other       http.HandlerFunc // nil: it is not called
		throttled, innocent func(int) bool   // calls not sent, and calls of the other paths that failed
	}{
		"502":             {says(http.StatusBadGateway), says(http.StatusOK), none, none},
		"504":             {says(http.StatusGatewayTimeout), says(http.StatusOK), none, none},
		"it hangs":        {hangs, says(http.StatusOK), none, none},
		"it is cut":       {cut, says(http.StatusOK), none, none},
		"504 in overload": {overloaded, says(http.StatusOK), most, func(n int) bool { return n > 50 }},
		"all fail": {says(http.StatusBadGateway), says(http.StatusGatewayTimeout), most, func(n int) bool {
			return n == 200
		}},
		"no other path": {says(http.StatusBadGateway), nil, most, none},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mux := http.NewServeMux()
				mux.Handle("/broken", c.broken)
				if c.other != nil {
					mux.Handle("/", c.other)
				}
				l := newPipes()
				s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
				done := make(chan error, 1)
				go func() { done <- s.Serve(l) }()

				caller := newCaller(t, retry.Config{Rand: rand.New(rand.NewPCG(1, 2)).Float64})
				base := &http.Transport{DialContext: l.dial, MaxIdleConnsPerHost: 1000}
				again := newRetry(t, caller, wardenhttp.RetryConfig{Base: base, AttemptTimeout: 50 * time.Millisecond})
				client := http.Client{Transport: again}
				var innocent atomic.Int32
				var clients sync.WaitGroup
				get := func(path string, failed func()) {
					clients.Go(func() {
						req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://host"+path, http.NoBody)
						if err != nil {
							t.Error(err)
							return
						}
						resp, err := client.Do(req)
						if err != nil {
							failed()
							return
						}
						resp.Body.Close()
						if resp.StatusCode != http.StatusOK {
							failed()
						}
					})
				}
				for i := range 1000 {
					get("/broken", func() {})
					if i%10 == 0 && c.other != nil {
						get("/users", func() { innocent.Add(1) })
						get(fmt.Sprintf("/orders/%d", i), func() { innocent.Add(1) })
					}
					time.Sleep(10 * time.Millisecond)
				}
				clients.Wait()
				stats := caller.Stats()
				if n := int(innocent.Load()); !c.innocent(n) || !c.throttled(int(stats.Throttled)) {
					t.Errorf("H25: %d of 200 calls to other paths failed; %+v", n, stats)
				}
				base.CloseIdleConnections()
				_ = s.Close() // the listener has no error
				if err := <-done; !errors.Is(err, http.ErrServerClosed) {
					t.Error(err)
				}
			})
		})
	}
}

// A busy server rejects at once what a stranger gives too little time. That is his doing, and no overload that others pay for.
func TestTooLittleTimeOfAStrangersThrottlesNobody(t *testing.T) {
	for _, trusted := range []bool{false, true} {
		server := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Warden-Rejected", "deadline_exceeded")
			w.WriteHeader(http.StatusGatewayTimeout)
		}), false)
		caller := newCaller(t, retry.Config{Attempts: 1})
		client := &http.Client{Transport: newRetry(t, caller, wardenhttp.RetryConfig{Base: server.Client().Transport})}
		m := must(wardenhttp.New(newGuard(t, 1, 0).Warden, wardenhttp.Config{Trusted: func(*http.Request) bool { return trusted }}))(t)
		h := m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_ = inquire(r.Context(), client, server.URL, http.NoBody)
		}))
		for range 9 {
			r := newRequest()
			r.Header.Set("Warden-Timeout", "60000")
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		want := retry.Stats{Calls: 9}
		if trusted {
			want.Rejected = 9
		}
		if diff := cmp.Diff(want, caller.Stats()); diff != "" {
			t.Errorf("H14: trusted %v (-want +got)\n%s", trusted, diff)
		}
	}
}

// Nor is it a failure of the server's, in the eyes of a breaker.
func TestTooLittleTimeOfAStrangersOpensNoBreaker(t *testing.T) {
	busy := newBusy(t, time.Hour)
	server := startServer(t, must(wardenhttp.New(busy, wardenhttp.Config{Trusted: func(*http.Request) bool { return true }}))(t).
		Handler(http.NotFoundHandler()), false)
	for _, trusted := range []bool{false, true} {
		told := &fuse{}
		client := &http.Client{Transport: must(wardenhttp.NewTransport(nil, wardenhttp.TransportConfig{
			Base: server.Client().Transport, Compartment: in(compartment(t, bulkhead.CompartmentConfig{Breaker: told})),
		}))(t)}
		m := must(wardenhttp.New(newGuard(t, 1, 0).Warden, wardenhttp.Config{Trusted: func(*http.Request) bool { return trusted }}))(t)
		r := newRequest()
		r.Header.Set("Warden-Timeout", "60000")
		m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_ = inquire(r.Context(), client, server.URL, http.NoBody)
		})).ServeHTTP(httptest.NewRecorder(), r)
		if n := busy.Limiter().Stats().RejectedFor(decision.DeadlineExceeded); n == 0 {
			t.Error("the server did not reject it for want of time")
		}
		told.mu.Lock()
		if len(told.told) != 1 || bulkhead.IsExcluded(told.told[0]) == trusted {
			t.Errorf("H14: trusted %v: the breaker was told %v", trusted, told.told)
		}
		told.mu.Unlock()
	}
}

// newBusy returns a warden whose one slot is taken, of work that needs that much time.
func newBusy(t *testing.T, need time.Duration) *warden.Warden {
	d := decision.ControlDecision{Seq: 1, TargetConcurrency: 1, Needs: map[string]time.Duration{"": need}}
	w := must(warden.New(warden.Config{
		Controller: constant{d}, Interval: 10 * time.Second, Limiter: limiter.Config{Initial: d, MaxQueue: 10},
	}))(t)
	_, p, err := w.Acquire(t.Context(), warden.Task{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Release() })
	return w
}

// A compartment of the host gets 100 requests a second and serves twenty; another one gets ten. What a host rejects because one
// compartment is full, or because its breaker is open, throttles nobody who calls the other; what it rejects in overload does.
func TestAFullCompartmentThrottlesNoOther(t *testing.T) {
	for name, c := range map[string]struct {
		noisy  bulkhead.CompartmentConfig
		target int // of a decision; 0: none
		lost   func(int) bool
	}{
		"full": {bulkhead.CompartmentConfig{Guaranteed: 1}, 0, func(n int) bool { return n == 0 }},
		"it queues": {
			bulkhead.CompartmentConfig{Guaranteed: 1, MaxQueue: 50, MaxWait: 100 * time.Millisecond},
			0, func(n int) bool { return n == 0 },
		},
		"broken": {bulkhead.CompartmentConfig{Guaranteed: 1, Breaker: &fuse{open: errors.New("open")}}, 0, func(n int) bool {
			return n == 0
		}},
		"overloaded": {bulkhead.CompartmentConfig{Guaranteed: 10}, 2, func(n int) bool { return n > 30 }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.noisy.Name = "/noisy"
				set := must(bulkhead.New(bulkhead.Config{
					Total: 20, Compartments: []bulkhead.CompartmentConfig{{Name: "/quiet", Guaranteed: 10}, c.noisy},
				}))(t)
				if c.target > 0 {
					set.Apply(decision.ControlDecision{Seq: 1, TargetConcurrency: c.target})
				}
				h := inCompartment(t, wardenhttp.Config{Compartment: func(r *http.Request) *bulkhead.Compartment {
					return set.Compartment(r.URL.Path)
				}}, func(http.ResponseWriter, *http.Request) { time.Sleep(50 * time.Millisecond) })
				l := newPipes()
				s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
				done := make(chan error, 1)
				go func() { done <- s.Serve(l) }()

				caller := newCaller(t, retry.Config{Rand: rand.New(rand.NewPCG(1, 2)).Float64})
				base := &http.Transport{DialContext: l.dial, MaxIdleConnsPerHost: 1000}
				again := newRetry(t, caller, wardenhttp.RetryConfig{Base: base})
				var lost atomic.Int32
				var clients sync.WaitGroup
				get := func(path string, lost *atomic.Int32) {
					clients.Go(func() {
						if status, _, _ := do(t, again, http.MethodGet, "http://host"+path, ""); status != http.StatusOK {
							lost.Add(1)
						}
					})
				}
				for i := range 1000 {
					get("/noisy", new(atomic.Int32))
					if i%10 == 0 {
						get("/quiet", &lost)
					}
					time.Sleep(10 * time.Millisecond)
				}
				clients.Wait()
				if n := int(lost.Load()); !c.lost(n) {
					t.Errorf("H25: %d of 100 calls to the other compartment failed; %+v", n, caller.Stats())
				}
				base.CloseIdleConnections()
				_ = s.Close() // the listener has no error
				if err := <-done; !errors.Is(err, http.ErrServerClosed) {
					t.Error(err)
				}
			})
		})
	}
}

// The user decides what an answer says, and the rest is as usual. It changes nothing about retries.
func TestOutcomeDecides(t *testing.T) {
	var usually []retry.Outcome
	cfg := wardenhttp.RetryConfig{Outcome: func(resp *http.Response, usual retry.Outcome) retry.Outcome {
		usually = append(usually, usual)
		switch resp.Header.Get("Server") {
		case "edge":
			return retry.Rejected
		case "mock":
			return retry.Unknown
		case "odd":
			return 77
		}
		return usual
	}}
	for _, c := range []struct {
		status int
		server string
		want   retry.Stats
	}{
		{502, "edge", retry.Stats{Calls: 1, Retries: 1, Rejected: 2}},
		{502, "", retry.Stats{Calls: 1, Retries: 1, Failed: 2}},
		{503, "mock", retry.Stats{Calls: 1, Retries: 1}},
		{503, "odd", retry.Stats{Calls: 1, Retries: 1}},
		{200, "edge", retry.Stats{Calls: 1, Rejected: 1}},
	} {
		caller := newCaller(t, retry.Config{Attempts: 2, Backoff: 1})
		cfg.Base = roundTrip(func(*http.Request) (*http.Response, error) {
			resp := respond(c.status, http.NoBody)
			resp.Header = http.Header{"Server": {c.server}}
			return resp, nil
		})
		resp, err := newRetry(t, caller, cfg).RoundTrip(newRequest())
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if diff := cmp.Diff(c.want, caller.Stats()); diff != "" {
			t.Errorf("H25: %d of %q (-want +got)\n%s", c.status, c.server, diff)
		}
	}
	f, r := retry.Failed, retry.Rejected
	want := []retry.Outcome{f, f, f, f, r, r, r, r, retry.Accepted}
	if diff := cmp.Diff(want, usually); diff != "" {
		t.Errorf("H25: usually (-want +got)\n%s", diff)
	}
}

// An Outcome that panics leaves no body open, also of a hedge, and ends no program.
func TestOutcomeThatPanics(t *testing.T) {
	for _, hedged := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var bodies []*payload
			var mu sync.Mutex
			var asked atomic.Int32
			rt := newRetry(t, newCaller(t, generous), wardenhttp.RetryConfig{
				HedgeAfter: time.Second,
				Outcome: func(_ *http.Response, usual retry.Outcome) retry.Outcome {
					if n := asked.Add(1); hedged && n == 1 || !hedged {
						panic("on purpose")
					}
					return usual
				},
				Base: roundTrip(func(r *http.Request) (*http.Response, error) {
					first := warden.PriorityFrom(r.Context()) == decision.Normal
					wait := 1500 * time.Millisecond
					if !first {
						wait = 100 * time.Millisecond
						if !hedged { // it has an answer, and waits until the first attempt has panicked
							wait = time.Hour
						}
					}
					select {
					case <-time.After(wait):
					case <-r.Context().Done():
						return nil, context.Cause(r.Context())
					}
					mu.Lock()
					defer mu.Unlock()
					bodies = append(bodies, newPayload("x"))
					return respond(http.StatusOK, bodies[len(bodies)-1]), nil
				}),
			})
			var resp *http.Response
			finish(func() { resp, _ = rt.RoundTrip(httptest.NewRequest(http.MethodGet, "http://host/", http.NoBody)) })
			if hedged != (resp != nil) {
				t.Errorf("H25: hedged %t: %v", hedged, resp)
			}
			if resp != nil {
				resp.Body.Close()
			}
			synctest.Wait()
			for i, b := range bodies {
				if n := b.closes.Load(); n != 1 {
					t.Errorf("R6: hedged %t: body %d was closed %d times", hedged, i, n)
				}
			}
		})
	}
}
