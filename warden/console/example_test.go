// SPDX-License-Identifier: Apache-2.0

// A service with a console on a listener of its own.

package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/console"
)

func ExampleNew() {
	w, err := warden.New(warden.Config{})
	if err != nil {
		panic(err)
	}
	page, err := console.New(console.Config{Title: "shop", Instance: "eu-1/7", Warden: w})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/console/", http.StripPrefix("/console", page))
	operators := &http.Server{
		Addr: "127.0.0.1:6060", Handler: mux, // on loopback or behind authentication: the page shows requests
		ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
	}
	operators.RegisterOnShutdown(page.Close) // event streams do not end by themselves

	_, _ = warden.Do(context.Background(), w, warden.Task{}, func(context.Context) (int, error) { return 1, nil })
	answer := httptest.NewRecorder() // in place of operators.ListenAndServe() and a browser
	operators.Handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "http://localhost/console/state.json", http.NoBody))
	var state struct{ Title, Instance string }
	fmt.Println(answer.Code, json.Unmarshal(answer.Body.Bytes(), &state), state.Title, state.Instance)
	// Output: 200 <nil> shop eu-1/7
}
