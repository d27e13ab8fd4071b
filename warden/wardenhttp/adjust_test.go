// SPDX-License-Identifier: Apache-2.0

// The timeout changes while requests are served (H27).

package wardenhttp_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/internal/timelimit"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// Each request has the timeout of its arrival, whatever it is changed to while the request is served: the warden's, or without
// one the middleware's.
func TestPropertyTimeoutChanges(t *testing.T) {
	timeouts := rapid.SampledFrom([]time.Duration{0, 0, time.Millisecond, time.Second, 3 * time.Second, time.Minute})
	rapid.Check(t, func(rt *rapid.T) {
		own, inCompartment := timeouts.Draw(rt, "own"), rapid.Bool().Draw(rt, "in a compartment")
		changes := rapid.SliceOfN(timeouts, 1, 8).Draw(rt, "changes")
		synctest.Test(t, func(t *testing.T) {
			w, err := warden.New(warden.Config{})
			if err != nil {
				t.Fatal(err)
			}
			cfg := wardenhttp.Config{Timeout: own}
			if inCompartment {
				set, err := bulkhead.New(
					bulkhead.Config{Total: 8, Compartments: []bulkhead.CompartmentConfig{{Name: "a", Guaranteed: 8}}},
				)
				if err != nil {
					t.Fatal(err)
				}
				cfg.Compartment = func(*http.Request) *bulkhead.Compartment { return set.Compartment("a") }
			}
			m, err := wardenhttp.New(w, cfg)
			if err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			for _, timeout := range changes {
				if err := w.Adjust("anna", func(b *warden.Bounds) { b.Timeout = timeout }); err != nil {
					t.Fatal(err)
				}
				want := timeout
				if want == 0 {
					want = own
				}
				arrived := time.Now()
				all.Go(func() {
					handler := m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
						time.Sleep(10 * time.Millisecond) // and the timeout changes
						at, _, bounded := timelimit.Due(r.Context())
						if bounded != (want > 0) || bounded && !at.Equal(arrived.Add(want)) {
							t.Errorf("H27: deadline %v after arrival (%v), want %v", at.Sub(arrived), bounded, want)
						}
					}))
					handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
				})
				synctest.Wait()
			}
			all.Wait()
		})
	})
}
