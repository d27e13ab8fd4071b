// Dependency calls two services, each in a compartment of its own: the one that hangs takes 5 slots and no more.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	log.Fatal(run(*addr))
}

// fetch returns the answer of the service at url. It ends when ctx does, and so with the compartment's Timeout.
func fetch(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// through calls the service at url in c: 503 when c is full, 504 when the call takes too long.
func through(c *bulkhead.Compartment, url string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := bulkhead.Do(r.Context(), c, func(ctx context.Context) (string, error) { return fetch(ctx, url) })
		switch {
		case err == nil:
			fmt.Fprintln(w, body)
		case !wardenhttp.WriteError(w, c, err): // no rejection of the compartment: the service failed
			w.WriteHeader(http.StatusBadGateway)
		}
	}
}

func run(addr string) error {
	set, err := bulkhead.New(bulkhead.Config{Total: 20, Compartments: []bulkhead.CompartmentConfig{
		{Name: "payments", Guaranteed: 15, MaxQueue: 50, Timeout: time.Second, Criticality: limiter.Critical},
		{Name: "recommendations", Guaranteed: 5, Timeout: 300 * time.Millisecond},
	}})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	self := "http://" + listener.Addr().String()
	mux := http.NewServeMux()
	mux.Handle("GET /checkout", through(set.Compartment("payments"), self+"/fake/payments"))
	mux.Handle("GET /recommend", through(set.Compartment("recommendations"), self+"/fake/recommendations"))
	// The two services are in the same program here: one answers after 10 ms, the other hangs.
	mux.HandleFunc("GET /fake/payments", func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(10 * time.Millisecond)
		fmt.Fprint(w, "paid")
	})
	mux.HandleFunc("GET /fake/recommendations", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 20 * time.Second, IdleTimeout: time.Minute,
	}
	log.Printf("listening on %s", self)
	return server.Serve(listener)
}
