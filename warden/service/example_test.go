// SPDX-License-Identifier: Apache-2.0

// A service from start to end.

package service_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/stopbank/stopbank/warden/service"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// A server under a warden, which answers one request and shuts down when its context ends.
func ExampleService() {
	s, err := service.New(service.Config{
		Name: "shop", Logger: slog.New(slog.DiscardHandler),
		HTTP:   wardenhttp.Config{Timeout: 2 * time.Second}, // a handler that hangs longer should heed its context
		Spread: time.Millisecond,                            // 5 s in production, for load balancers
	})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /search", s.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "found")
	})))
	mux.Handle("GET /readyz", s.Ready)

	ctx, stop := context.WithCancel(context.Background()) // of signal.NotifyContext in production
	serving := make(chan string, 1)
	server := &http.Server{
		Addr: "127.0.0.1:0", Handler: mux,
		ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
		BaseContext: func(l net.Listener) context.Context { serving <- l.Addr().String(); return context.Background() },
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, server) }()

	answer, err := http.Get("http://" + <-serving + "/search")
	if err != nil {
		panic(err)
	}
	body, _ := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	fmt.Println(answer.StatusCode, string(body))

	http.DefaultClient.CloseIdleConnections()
	stop()
	fmt.Println("shut down:", <-ended)
	// Output:
	// 200 found
	// shut down: <nil>
}

// A program whose framework has the server: only begin and end are the service's.
func ExampleService_Start() {
	s, err := service.New(service.Config{Name: "shop", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	if err = s.Start(); err != nil {
		panic(err)
	}
	server := httptest.NewServer(s.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { // the framework's
		fmt.Fprint(w, "found")
	})))
	answer, err := http.Get(server.URL)
	if err != nil {
		panic(err)
	}
	_ = answer.Body.Close()
	fmt.Println(answer.StatusCode)

	s.Drain()
	ready := httptest.NewRecorder()
	s.Ready.ServeHTTP(ready, nil)
	fmt.Println("ready:", ready.Code)
	server.Close()
	fmt.Println("stopped:", s.Stop(context.Background()), s.Warden.Limiter().Stats().Executed)
	// Output:
	// 200
	// ready: 503
	// stopped: <nil> 1
}
