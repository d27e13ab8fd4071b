// SPDX-License-Identifier: Apache-2.0

// Where settings go: the warden's, the middleware's and a compartment's. docs/guides/tuning.md shows it.

package wardenhttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// protect puts a handler under a warden, and what it asks of the database into a compartment.
func protect(ctx context.Context, query func(context.Context) (string, error)) (http.Handler, error) {
	w, err := warden.New(warden.Config{
		Control: control.Config{Initial: 64, Max: 256},
		Limiter: limiter.Config{MaxQueue: 512, StarvationEvery: 20},
	})
	if err != nil {
		return nil, err
	}
	go func() { _ = w.Run(ctx) }()
	mw, err := wardenhttp.New(w, wardenhttp.Config{
		Timeout: 2 * time.Second,
		Task: func(r *http.Request) warden.Task {
			if r.URL.Path == "/checkout" {
				return warden.Task{Name: "checkout", Priority: decision.Critical}
			}
			return warden.Task{Name: "page"}
		},
	})
	if err != nil {
		return nil, err
	}
	set, err := bulkhead.New(bulkhead.Config{Total: 80, Compartments: []bulkhead.CompartmentConfig{
		{Name: "orders", Guaranteed: 30, Max: 45, MaxQueue: 150, MaxWait: 500 * time.Millisecond, Timeout: time.Second},
	}})
	if err != nil {
		return nil, err
	}
	orders := set.Compartment("orders")
	return mw.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		answer, err := bulkhead.Do(r.Context(), orders, query)
		switch {
		case err == nil:
			_, _ = rw.Write([]byte(answer))
		case !mw.WriteError(rw, orders, err): // no rejection and no timeout: the query's own error
			http.Error(rw, "internal error", http.StatusInternalServerError)
		}
	})), nil
}

// Settings of a warden, of its middleware and of a compartment.
func ExampleNew_tuned() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	h, err := protect(ctx, func(context.Context) (string, error) { return "3 orders", nil })
	if err != nil {
		panic(err)
	}
	fetch(h, httptest.NewRequest(http.MethodGet, "/checkout", http.NoBody))
	// Output:
	// 200 3 orders
}
