// SPDX-License-Identifier: Apache-2.0

// One runnable example per entry point.

package wardenhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/retry"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// fetch prints what a client sees.
func fetch(h http.Handler, r *http.Request) {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	fmt.Println(strings.TrimSpace(fmt.Sprint(rec.Code, " ", rec.Body)))
}

// Refunds matter most, the health check needs no slot, and whoever is rejected is told why, by whom and under which id.
func ExampleNew() {
	w, err := warden.New(warden.Config{Interval: 10 * time.Second}) // seldom, so that the first decision rules all the time
	if err != nil {
		panic(err)
	}
	mw, err := wardenhttp.New(w, wardenhttp.Config{
		Task: func(r *http.Request) warden.Task {
			if r.URL.Path == "/refund" {
				return warden.Task{Name: "refund", Priority: decision.Critical}
			}
			return warden.Task{Name: "other"}
		},
		Exempt:   func(r *http.Request) bool { return r.URL.Path == "/healthz" },
		Instance: "shop-7f9c",
	})
	if err != nil {
		panic(err)
	}
	h := mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") }))

	fetch(h, httptest.NewRequest(http.MethodGet, "/refund", http.NoBody))
	w.Limiter().Close()
	late := httptest.NewRequest(http.MethodGet, "/refund", http.NoBody)
	late.Header.Set("X-Request-Id", "4bf92f3577b34da6")
	fetch(h, late)
	fetch(h, httptest.NewRequest(http.MethodGet, "/healthz", http.NoBody))
	// Output:
	// 200 served
	// 503 {"title":"Service Unavailable","status":503,"reason":"closed","decision":1,"request_id":"4bf92f3577b34da6","server_instance":"shop-7f9c"}
	// 200 served
}

// Customers share the slots of an API fairly. One that sends too much gets 429 and the others are not affected; a client that
// invents keys cannot create more tenants than configured.
func ExampleConfig_tenants() {
	set, err := bulkhead.New(bulkhead.Config{Total: 4, Compartments: []bulkhead.CompartmentConfig{
		// slots and queue of a tenant
		{Name: "api", Guaranteed: 4, MaxQueue: 1, Tenants: bulkhead.TenantsConfig{Max: 2, Keys: 8}},
	}})
	if err != nil {
		panic(err)
	}
	mw, err := wardenhttp.New(nil, wardenhttp.Config{
		Compartment: func(r *http.Request) *bulkhead.Compartment {
			return set.Compartment("api").Tenant(r.Header.Get("Api-Key")) // a real service takes it from its authentication
		},
	})
	if err != nil {
		panic(err)
	}
	h := mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") }))
	get := func(key string) int {
		rec, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		req.Header.Set("Api-Key", key)
		h.ServeHTTP(rec, req)
		return rec.Code
	}

	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	acme := set.Compartment("api").Tenant("acme")
	for range 3 { // slow requests of acme: two run and one is queued
		go func() { _, _, _ = acme.Acquire(ctx) }()
	}
	for c := acme.Snapshot(); c.InFlight < 2 || c.Queued < 1; c = acme.Snapshot() {
		time.Sleep(time.Millisecond) // until all three have asked
	}
	fmt.Println("acme:", get("acme"), "birch:", get("birch"))
	for i := range 50 {
		_ = get(fmt.Sprint("invented-", i))
	}
	fmt.Println("tenants kept:", set.Compartment("api").Snapshot().Tenants.Keys)
	// Output:
	// acme: 429 birch: 200
	// tenants kept: 8
}

// A client of a payment service: while all its slots are taken, nothing is sent.
func ExampleNewTransport() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "paid") }))
	defer server.Close()
	// one slot, and whoever would have to wait is rejected
	w, err := warden.New(warden.Config{
		Interval: 10 * time.Second,
		Limiter:  limiter.Config{Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 1, ShedProbability: 1}},
	})
	if err != nil {
		panic(err)
	}
	payments, err := wardenhttp.NewTransport(w, wardenhttp.TransportConfig{})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: payments}
	defer client.CloseIdleConnections()

	resp, err := client.Get(server.URL)
	if err != nil {
		panic(err)
	}
	_, err = client.Get(server.URL)
	fmt.Println("while the first answer is unread:", errors.Is(err, warden.ErrRejected))
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	fmt.Println(string(body), err, w.Limiter().Stats().Running)
	// Output:
	// while the first answer is unread: true
	// paid <nil> 0
}

// A client of a payment service, over 20 connections at most. While all are in use and requests wait for one, the limit is what
// they have enough for, and a rejection says "payments: 20 of 20 in use, 7 wait 40ms".
func ExamplePool() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "paid") }))
	defer server.Close()
	pool, base := wardenhttp.Pool("payments", &http.Transport{MaxConnsPerHost: 20})
	w, err := warden.New(warden.Config{Pools: []monitor.Pool{pool}})
	if err != nil {
		panic(err)
	}
	payments, err := wardenhttp.NewTransport(w, wardenhttp.TransportConfig{Base: base})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: payments}
	defer client.CloseIdleConnections()

	resp, err := client.Get(server.URL)
	if err != nil {
		panic(err)
	}
	fmt.Printf("an answer is unread: %d of %d in use\n", pool.Stats().InUse, pool.Stats().Max)
	_, err = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	fmt.Printf("it was read: %d of %d in use, %v\n", pool.Stats().InUse, pool.Stats().Max, err)
	// Output:
	// an answer is unread: 1 of 20 in use
	// it was read: 0 of 20 in use, <nil>
}

// A service between two others: what a client said of its request, and how much time it has left, goes on to the service behind.
func ExampleNewTransport_onward() {
	serve := func(next http.HandlerFunc) (url string, stop func()) {
		w, err := warden.New(warden.Config{})
		if err != nil {
			panic(err)
		}
		mw, err := wardenhttp.New(w, wardenhttp.Config{})
		if err != nil {
			panic(err)
		}
		server := httptest.NewServer(mw.Handler(next))
		return server.URL, server.Close
	}
	url, stop := serve(func(w http.ResponseWriter, r *http.Request) {
		told := r.Header.Get("Warden-Timeout") != ""
		fmt.Fprint(w, "priority ", warden.PriorityFrom(r.Context()), ", told its time ", told)
	})
	defer stop()
	w, err := warden.New(warden.Config{}) // of the service behind
	if err != nil {
		panic(err)
	}
	behind, err := wardenhttp.NewTransport(w, wardenhttp.TransportConfig{})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: behind}
	defer client.CloseIdleConnections()
	front, stopFront := serve(func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			panic(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			panic(err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(w, resp.Body)
	})
	defer stopFront()

	req, err := http.NewRequest(http.MethodGet, front, http.NoBody)
	if err != nil {
		panic(err)
	}
	req.Header.Set("Warden-Priority", "background")
	req.Header.Set("X-Request-Timeout", "30")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Println(string(body), err)
	http.DefaultClient.CloseIdleConnections()
	// Output: priority background, told its time true <nil>
}

// Each route has its priority: the context of its requests carries it into the middleware, and tasks keep their usual names.
func ExampleMiddleware_Handler() {
	w, err := warden.New(warden.Config{})
	if err != nil {
		panic(err)
	}
	mw, err := wardenhttp.New(w, wardenhttp.Config{})
	if err != nil {
		panic(err)
	}
	prioritized := func(p decision.Priority, next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(warden.WithPriority(r.Context(), p)))
		})
	}
	handler := mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "priority ", warden.PriorityFrom(r.Context()))
	}))
	mux := http.NewServeMux()
	mux.Handle("GET /search", handler)
	mux.Handle("POST /pay", prioritized(decision.Critical, handler))
	mux.Handle("POST /report", prioritized(decision.Background, handler))

	fetch(mux, httptest.NewRequest(http.MethodGet, "/search", nil))
	fetch(mux, httptest.NewRequest(http.MethodPost, "/pay", nil))
	fetch(mux, httptest.NewRequest(http.MethodPost, "/report", nil))
	// Output:
	// 200 priority normal
	// 200 priority critical
	// 200 priority background
}

// failing is a handler of a framework whose handlers return errors.
type failing struct {
	handle func(http.ResponseWriter, *http.Request) error
	err    error
}

func (f *failing) ServeHTTP(w http.ResponseWriter, r *http.Request) { f.err = f.handle(w, r) }

// A framework in which each request has a next handler of its own, which returns an error.
func ExampleMiddleware_Serve() {
	guard, err := warden.New(warden.Config{})
	if err != nil {
		panic(err)
	}
	mw, err := wardenhttp.New(guard, wardenhttp.Config{Timeout: 10 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	middleware := func(w http.ResponseWriter, r *http.Request, next *failing) error {
		if !mw.Serve(w, r, next) {
			return next.err
		}
		return nil
	}

	for _, handle := range []func(http.ResponseWriter, *http.Request) error{
		func(http.ResponseWriter, *http.Request) error { return errors.New("no such order") },
		func(_ http.ResponseWriter, r *http.Request) error { <-r.Context().Done(); return r.Context().Err() },
	} {
		rec := httptest.NewRecorder()
		err := middleware(rec, httptest.NewRequest(http.MethodGet, "/", http.NoBody), &failing{handle: handle})
		fmt.Println(rec.Code, err) // the framework answers its handler's errors
	}
	// Output:
	// 200 no such order
	// 504 <nil>
}

// A handler that asks for a compartment itself, around the part of it that needs one.
func ExampleWriteError() {
	set, err := bulkhead.New(
		bulkhead.Config{Total: 2, Compartments: []bulkhead.CompartmentConfig{{Name: "search", Guaranteed: 2}}},
	)
	if err != nil {
		panic(err)
	}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := set.Compartment(r.URL.Query().Get("in"))
		found, err := bulkhead.Do(r.Context(), c, func(context.Context) (string, error) { return "found", nil })
		switch {
		case wardenhttp.WriteError(w, c, err):
		case err != nil:
			http.Error(w, "search failed", http.StatusInternalServerError)
		default:
			fmt.Fprint(w, found)
		}
	})
	fetch(h, httptest.NewRequest(http.MethodGet, "/?in=search", http.NoBody))
	fetch(h, httptest.NewRequest(http.MethodGet, "/?in=nowhere", http.NoBody))
	// Output:
	// 200 found
	// 500 {"title":"Internal Server Error","status":500,"reason":"unknown_compartment"}
}

// A client of a service that rejects the first request: the retry is within the budget, and what reaches the server of it is a
// second attempt.
func ExampleNewRetry() {
	attempts := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if attempts++; attempts == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, "served")
	}))
	defer server.Close()
	w, err := warden.New(warden.Config{Interval: 10 * time.Second})
	if err != nil {
		panic(err)
	}

	caller, err := retry.New(retry.Config{}) // one is enough: it counts each host by itself
	if err != nil {
		panic(err)
	}
	// each attempt asks for a slot; leave it out if you need none
	slots, err := wardenhttp.NewTransport(w, wardenhttp.TransportConfig{})
	if err != nil {
		panic(err)
	}
	again, err := wardenhttp.NewRetry(caller, wardenhttp.RetryConfig{Base: slots})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: again, Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()

	resp, err := client.Get(server.URL)
	switch {
	case errors.Is(err, retry.ErrThrottled):
		fmt.Println("not sent:", err)
	case err != nil:
		fmt.Println(err)
	default:
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Println(resp.StatusCode, string(body), caller.Stats().Retries)
	}
	// Output:
	// 200 served 1
}

// A reverse proxy whose upstream goes on when a client has left: the request keeps its slot until the upstream is done.
func ExampleDetach() {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "from the upstream")
	}))
	defer upstream.Close()
	to, _ := url.Parse(upstream.URL)
	rewrite := func(r *httputil.ProxyRequest) { r.SetURL(to) }
	w, err := warden.New(warden.Config{})
	if err != nil {
		panic(err)
	}
	mw, err := wardenhttp.New(w, wardenhttp.Config{Timeout: 10 * time.Second})
	if err != nil {
		panic(err)
	}

	mux := http.NewServeMux()
	proxy := &httputil.ReverseProxy{Rewrite: rewrite, Transport: wardenhttp.Detach(nil)}
	mux.Handle("/", mw.Handler(proxy))
	fetch(mux, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	http.DefaultClient.CloseIdleConnections()
	// Output: 200 from the upstream
}

// A program that shuts down without package service: readiness fails first, and the listeners close last.
func ExampleReadiness() {
	w, err := warden.New(warden.Config{})
	if err != nil {
		panic(err)
	}
	mw, err := wardenhttp.New(w, wardenhttp.Config{})
	if err != nil {
		panic(err)
	}
	work := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") }
	ready, mux := new(wardenhttp.Readiness), http.NewServeMux()
	mux.Handle("GET /readyz", ready) // outside the middleware: a probe costs nothing and must not be rejected
	mux.Handle("GET /work", mw.Handler(http.HandlerFunc(work)))
	running := httptest.NewServer(mux)
	defer running.Close()
	server, probe := running.Config, httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody)
	fetch(mux, probe)

	spread := 10 * time.Millisecond // 5 to 15 s behind a load balancer
	ready.Drain()
	time.Sleep(spread) // until probes have failed and every proxy knows, requests still arrive and are served
	fetch(mux, probe)
	fetch(mux, httptest.NewRequest(http.MethodGet, "/work", http.NoBody))

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second) // with spread, less than terminationGracePeriodSeconds
	defer cancel()
	err = server.Shutdown(ctx)
	fmt.Println("shut down:", err)
	// Output:
	// 200 ready
	// 503 draining
	// 200 served
	// shut down: <nil>
}

// An edge server answers 502 when it is overloaded, so that these answers count whatever the other paths answer.
func ExampleRetryConfig() {
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Server", "edge")
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer host.Close()
	caller, err := retry.New(retry.Config{Attempts: 1})
	if err != nil {
		panic(err)
	}
	again, err := wardenhttp.NewRetry(caller, wardenhttp.RetryConfig{
		Outcome: func(resp *http.Response, usual retry.Outcome) retry.Outcome {
			if resp.StatusCode == http.StatusBadGateway && resp.Header.Get("Server") == "edge" {
				return retry.Rejected // our edge answers 502 when it is overloaded
			}
			return usual
		},
	})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: again, Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Get(host.URL)
	if err != nil {
		panic(err)
	}
	resp.Body.Close()
	s := caller.Stats()
	fmt.Println(resp.StatusCode, "rejected", s.Rejected, "failed", s.Failed)
	// Output: 502 rejected 1 failed 0
}

// A compartment without a free slot serves the bestsellers instead of 503.
func ExampleConfig_fallback() {
	set, err := bulkhead.New(
		bulkhead.Config{Total: 1, Compartments: []bulkhead.CompartmentConfig{{Name: "products", Guaranteed: 1}}},
	)
	if err != nil {
		panic(err)
	}
	bestsellers := []byte("bestsellers")
	mw, err := wardenhttp.New(nil, wardenhttp.Config{
		Compartment: func(*http.Request) *bulkhead.Compartment { return set.Compartment("products") },
		Fallback: func(w http.ResponseWriter, _ *http.Request, cause error) bool {
			_, err := w.Write(bestsellers)
			return err == nil
		},
	})
	if err != nil {
		panic(err)
	}
	h := mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "for you") }))
	get := func() {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/products", http.NoBody))
		fmt.Println(rec.Code, rec.Body)
	}
	get()
	_, slot, err := set.Compartment("products").Acquire(context.Background())
	if err != nil {
		panic(err)
	}
	get()
	slot.Release(nil)
	fmt.Println("degraded:", set.Compartment("products").Snapshot().Degraded)
	// Output:
	// 200 for you
	// 200 bestsellers
	// degraded: 1
}

// The balancer learns with each answer how loaded the service is, here by the connections of its database; nobody else does.
func ExampleConfig_loadReports() {
	database := monitor.Pool{Name: "orders-db", Stats: func() monitor.PoolStats { return monitor.PoolStats{InUse: 8, Max: 10} }}
	w, err := warden.New(warden.Config{Pools: []monitor.Pool{database}, Interval: 10 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	fromBalancer := func(r *http.Request) bool {
		return strings.HasPrefix(r.RemoteAddr, "192.0.2.") // better: its client certificate
	}
	mw, err := wardenhttp.New(w, wardenhttp.Config{LoadReports: true, Trusted: fromBalancer})
	if err != nil {
		panic(err)
	}
	h := mw.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") }))
	report := func(from string) string {
		rec, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		req.RemoteAddr = from
		h.ServeHTTP(rec, req)
		return rec.Header().Get("endpoint-load-metrics")
	}
	told := ""
	for told == "" { // before its first samples, the warden knows nothing
		time.Sleep(10 * time.Millisecond)
		told = report("192.0.2.1:443")
	}
	form, _, _ := strings.Cut(told, "=")
	fmt.Printf("the balancer: %s\nsomebody: %q\n", form, report("203.0.113.7:9999"))
	// Output:
	// the balancer: TEXT application_utilization
	// somebody: ""
}
