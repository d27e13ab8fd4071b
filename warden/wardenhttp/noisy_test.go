// SPDX-License-Identifier: Apache-2.0

// A gateway's throttle beside a tenant that sends too much: what is answered for one tenant says nothing about the others.

package wardenhttp_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/retry"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// pipes is a listener in memory, so that HTTP runs in virtual time.
type pipes struct {
	dialed chan net.Conn
	closed chan struct{}
	close  func()
}

func newPipes() *pipes {
	p := &pipes{dialed: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return p
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.dialed <- there:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.dialed:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.close(); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

// Twenty quiet tenants send ten requests a second in all, a noisy one 150, of which its two slots serve forty. The noisy one is
// told so by its full queue (429) or, where many may wait, by the bound on the wait (504). All requests of the others are sent.
func TestNoisyTenantThrottlesNobodyElse(t *testing.T) {
	for name, c := range map[string]struct {
		queue int
		wait  time.Duration
		told  int
	}{
		"a full queue": {2, 0, http.StatusTooManyRequests},
		"a long wait":  {1000, time.Second, http.StatusGatewayTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const quiet, every, noisyEvery, work = 147, time.Second / 10, time.Second / 150, 50 * time.Millisecond
				var mu sync.Mutex // guards both
				served, answered := map[string]int{}, map[string]map[int]int{"quiet": {}, "noisy": {}}

				shop := compartment(t, bulkhead.CompartmentConfig{
					Guaranteed: 64, MaxQueue: c.queue, MaxWait: c.wait, Tenants: bulkhead.TenantsConfig{Max: 2},
				})
				protect := inCompartment(t, wardenhttp.Config{Compartment: func(r *http.Request) *bulkhead.Compartment {
					return shop.Tenant(r.Header.Get("Tenant"))
				}}, func(_ http.ResponseWriter, r *http.Request) {
					mu.Lock()
					served[r.URL.Path]++
					mu.Unlock()
					time.Sleep(work)
				})
				l := newPipes()
				backend := &http.Server{
					Handler:           protect,
					ReadHeaderTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
				}
				done := make(chan error, 1)
				go func() { done <- backend.Serve(l) }()

				caller := newCaller(t, retry.Config{Rand: rand.New(rand.NewPCG(1, 2)).Float64})
				base := &http.Transport{DialContext: l.dial, MaxIdleConnsPerHost: 1000}
				gateway := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "backend"})
				gateway.Transport = newRetry(t, caller, wardenhttp.RetryConfig{Base: base})
				gateway.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
					if !wardenhttp.WriteError(w, nil, err) {
						t.Error(err)
					}
				}

				var clients sync.WaitGroup
				send := func(path, tenant string) {
					clients.Go(func() {
						r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://gateway/"+path, http.NoBody)
						r.Header.Set("Tenant", tenant)
						rec := httptest.NewRecorder()
						gateway.ServeHTTP(rec, r)
						mu.Lock()
						answered[path][rec.Code]++
						mu.Unlock()
					})
				}
				began := time.Now()
				clients.Go(func() {
					for i := range quiet {
						time.Sleep(time.Until(began.Add(time.Duration(i) * every)))
						send("quiet", "quiet "+strconv.Itoa(i%20))
					}
				})
				for i := range int(quiet * every / noisyEvery) {
					time.Sleep(time.Until(began.Add(time.Duration(i) * noisyEvery)))
					send("noisy", "noisy")
				}
				clients.Wait()

				stats := caller.Stats()
				got := map[string]any{
					"answered": answered["quiet"],
					"served":   served["/quiet"], "throttled": stats.Throttled, "rejected": stats.Rejected,
				}
				want := map[string]any{
					"answered": map[int]int{http.StatusOK: quiet}, "served": quiet, "throttled": uint64(0), "rejected": uint64(0),
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("R8: the quiet tenants (-want +got)\n%s", diff)
				}
				// The noisy one was told, and was tried again within the budget.
				codes := answered["noisy"]
				if n := codes[c.told]; n < 1000 || stats.Retries == 0 || float64(stats.Retries) > 0.1*float64(stats.Calls) {
					t.Errorf("R8: the noisy tenant: %v, %+v", maps.Clone(codes), stats)
				}

				base.CloseIdleConnections()
				_ = backend.Close() // the listener has no error
				if err := <-done; err != http.ErrServerClosed {
					t.Error(err)
				}
			})
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
		resp, err := rt.RoundTrip(newRequest())
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if diff := cmp.Diff(c.want, caller.Stats()); diff != "" {
			t.Errorf("R8: %d %v (-want +got)\n%s", c.status, c.header, diff)
		}
	}
}
