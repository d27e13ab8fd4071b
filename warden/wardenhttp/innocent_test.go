// SPDX-License-Identifier: Apache-2.0

// The throttle pays for overload only (H25, R8): a broken path of a host, or a full part of it, throttles nobody who calls the others.

package wardenhttp_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/retry"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// A path of a host is broken and gets 100 requests a second; two others get ten each.
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
		bubble(t, name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.Handle("/broken", c.broken)
			if c.other != nil {
				mux.Handle("/", c.other)
			}
			caller := newCaller(t, retry.Config{Rand: rand.New(rand.NewPCG(1, 2)).Float64})
			base := inMemory(t, &http.Server{Handler: mux})
			again := newRetry(t, caller, wardenhttp.RetryConfig{Base: base, AttemptTimeout: 50 * time.Millisecond})
			others := []string{"/users", "/orders/*"}
			if c.other == nil {
				others = nil
			}
			if n, stats := besideNoise(t, again, "/broken", others...), caller.Stats(); !c.innocent(n) || !c.throttled(int(stats.Throttled)) {
				t.Errorf("H25: %d of 200 calls to other paths failed; %+v", n, stats)
			}
		})
	}
}

// besideNoise sends 100 requests a second to one path, and ten to each of the others, for ten seconds. It returns how many of these failed.
func besideNoise(t *testing.T, rt http.RoundTripper, noisy string, others ...string) int {
	t.Helper()
	var lost, noise atomic.Int32
	var clients sync.WaitGroup
	get := func(path string, lost *atomic.Int32) {
		clients.Go(func() {
			if status, _, err := do(t, rt, http.MethodGet, "http://host"+path, ""); err != nil || status != http.StatusOK {
				lost.Add(1)
			}
		})
	}
	for i := range 1000 {
		get(noisy, &noise)
		for _, path := range others {
			if i%10 == 0 {
				get(strings.ReplaceAll(path, "*", strconv.Itoa(i)), &lost)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	clients.Wait()
	return int(lost.Load())
}

// A compartment of the host gets 100 requests a second and serves twenty, or a tenant does in one that it shares; another one gets ten.
// What a host rejects because one of them is full, or because its breaker is open, throttles nobody who calls the other; what it rejects
// in overload does.
func TestAFullCompartmentThrottlesNoOther(t *testing.T) {
	none := func(n int) bool { return n == 0 }
	shared := bulkhead.TenantsConfig{Max: 1}
	for name, c := range map[string]struct {
		noisy  bulkhead.CompartmentConfig
		target int // of a decision; 0: none
		lost   func(int) bool
	}{
		"full":                  {bulkhead.CompartmentConfig{Guaranteed: 1}, 0, none},
		"it queues":             {bulkhead.CompartmentConfig{Guaranteed: 1, MaxQueue: 50, MaxWait: 100 * time.Millisecond}, 0, none},
		"broken":                {bulkhead.CompartmentConfig{Guaranteed: 1, Breaker: &fuse{open: errors.New("open")}}, 0, none},
		"overloaded":            {bulkhead.CompartmentConfig{Guaranteed: 10}, 2, func(n int) bool { return n > 30 }},
		"a tenant's full queue": {bulkhead.CompartmentConfig{Guaranteed: 10, MaxQueue: 2, Tenants: shared}, 0, none},
		"a tenant's long wait":  {bulkhead.CompartmentConfig{Guaranteed: 10, MaxQueue: 1000, MaxWait: time.Second, Tenants: shared}, 0, none},
	} {
		bubble(t, name, func(t *testing.T) {
			c.noisy.Name = "/noisy"
			set := must(bulkhead.New(bulkhead.Config{
				Total: 20, Compartments: []bulkhead.CompartmentConfig{{Name: "/quiet", Guaranteed: 10}, c.noisy},
			}))(t)
			if c.target > 0 {
				set.Apply(decision.ControlDecision{Seq: 1, TargetConcurrency: c.target})
			}
			h := handle(t, nil, wardenhttp.Config{Compartment: func(r *http.Request) *bulkhead.Compartment {
				if c.noisy.Tenants.Max > 0 {
					return set.Compartment("/noisy").Tenant(r.URL.Path)
				}
				return set.Compartment(r.URL.Path)
			}}, func(http.ResponseWriter, *http.Request) { time.Sleep(50 * time.Millisecond) })
			caller := newCaller(t, retry.Config{Rand: rand.New(rand.NewPCG(1, 2)).Float64})
			again := newRetry(t, caller, wardenhttp.RetryConfig{Base: inMemory(t, &http.Server{Handler: h})})
			if n := besideNoise(t, again, "/noisy", "/quiet"); !c.lost(n) {
				t.Errorf("H25: %d of 100 calls to the other compartment failed; %+v", n, caller.Stats())
			}
		})
	}
}

// What each answer teaches the throttle.
func TestWhatAnAnswerTeaches(t *testing.T) {
	accepted, rejected, nothing := retry.Stats{Calls: 1, Accepted: 1}, retry.Stats{Calls: 1, Rejected: 1}, retry.Stats{Calls: 1}
	failed := retry.Stats{Calls: 1, Failed: 1}
	ours, tenants := http.Header{"Warden-Rejected": {"queue_overflow"}}, http.Header{"Warden-Scope": {"tenant"}}
	both := http.Header{"Warden-Rejected": {"queue_overflow"}, "Warden-Scope": {"tenant"}}
	for _, c := range []struct {
		status int
		header http.Header
		want   retry.Stats
	}{
		{200, nil, accepted},
		{200, tenants, accepted},
		{404, nil, accepted},
		{500, nil, accepted},
		{502, nil, failed},
		{503, nil, rejected},
		{504, nil, failed},
		{502, ours, rejected},
		{503, ours, rejected},
		{504, ours, rejected},
		{429, nil, nothing},     // a stranger's quota
		{429, ours, rejected},   // Connect's resource_exhausted
		{429, both, nothing},    // a tenant that has used up its share,
		{429, tenants, nothing}, // as a handler's WriteError says it
		{504, both, nothing},    // a tenant that had to wait too long
		{503, http.Header{"Warden-Scope": {"compartment"}}, failed}, // one compartment is full, or its breaker open
		{429, http.Header{"Warden-Rejected": {"queue_overflow"}, "Warden-Scope": {"compartment"}}, failed},
		{503, http.Header{"Warden-Scope": {"server"}}, rejected},
		{503, http.Header{"Warden-Scope": {"tenant", "tenant"}}, rejected},
	} {
		caller := newCaller(t, retry.Config{Attempts: 1})
		rt := newRetry(t, caller, wardenhttp.RetryConfig{Base: roundTrip(func(*http.Request) (*http.Response, error) {
			resp := respond(c.status, http.NoBody)
			resp.Header = c.header
			return resp, nil
		})})
		resp := must(rt.RoundTrip(newRequest()))(t)
		resp.Body.Close()
		if diff := cmp.Diff(c.want, caller.Stats()); diff != "" {
			t.Errorf("R8: %d %v (-want +got)\n%s", c.status, c.header, diff)
		}
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
			return respond(c.status, http.NoBody, "Server", c.server), nil
		})
		resp := must(newRetry(t, caller, cfg).RoundTrip(newRequest()))(t)
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
