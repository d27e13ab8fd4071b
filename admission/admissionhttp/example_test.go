// SPDX-License-Identifier: Apache-2.0

// Both entry points at work over loopback: a server that rejects, and a client that does not send.

package admissionhttp_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/admission/admissionhttp"
)

// A server admits one report at a time and asks rejected clients to return in two seconds or a little later.
func ExampleNewHandler() {
	gate, err := admission.New(admission.Config{Name: "reports", Limit: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	reports := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "a report") })
	handler, err := admissionhttp.NewHandler(reports, admissionhttp.HandlerConfig{Gate: gate, RetryAfter: 1500 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(handler)
	defer server.Close()

	get := func() {
		resp, err := http.Get(server.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%d %q, Retry-After %v\n", resp.StatusCode, body, resp.Header.Get("Retry-After") != "")
	}

	busy, err := gate.TryAcquire() // stands for a request that is being served
	if err != nil {
		fmt.Println(err)
		return
	}
	get()
	busy.Release()
	get()
	// Output:
	// 503 "Service Unavailable\n", Retry-After true
	// 200 "a report", Retry-After false
}

// A client has at most one request to the orders service in flight. One whose body has not been read still is.
func ExampleNewTransport() {
	orders := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "an order") }))
	defer orders.Close()

	gate, err := admission.New(admission.Config{Name: "orders", Limit: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	transport, err := admissionhttp.NewTransport(admissionhttp.TransportConfig{Gate: gate})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: transport}
	defer client.CloseIdleConnections()

	first, err := client.Get(orders.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer first.Body.Close()
	fmt.Println(first.StatusCode, gate.Stats().InFlight)

	_, err = client.Get(orders.URL) // not sent
	var rejected *admission.RejectedError
	if errors.Is(err, admission.ErrRejected) && errors.As(err, &rejected) {
		fmt.Println(rejected.Gate, rejected.Reason)
	}

	if _, err := io.Copy(io.Discard, first.Body); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("read to the end:", gate.Stats().InFlight)
	// Output:
	// 200 1
	// orders saturated
	// read to the end: 0
}
