// Dependency calls two services, each in a compartment of its own: the service that hangs occupies 5 slots and no more.
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
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	log.Fatal(run(*addr))
}

// fetch returns the response of the service at url. The compartment's Timeout cancels ctx and with it the request.
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

// through calls the service at url inside compartment c: 503 when c is full, 504 when the call exceeds its Timeout.
func through(c *bulkhead.Compartment, url string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := bulkhead.Do(r.Context(), c, func(ctx context.Context) (string, error) { return fetch(ctx, url) })
		switch {
		case err == nil:
			fmt.Fprintln(w, body)
		case !wardenhttp.WriteError(w, c, err): // not a rejection of the compartment: the service failed
			w.WriteHeader(http.StatusBadGateway)
		}
	}
}

// home shows the recommendations, or the bestsellers if there are none in time.
func home(c *bulkhead.Compartment, url string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := bulkhead.DoOr(r.Context(), c, func(ctx context.Context) (string, error) { return fetch(ctx, url) },
			func(context.Context, error) (string, error) { return "bestsellers", nil })
		if err != nil { // the client left
			return
		}
		fmt.Fprintln(w, body)
	}
}

func run(addr string) error {
	set, err := bulkhead.New(bulkhead.Config{Total: 20, Compartments: []bulkhead.CompartmentConfig{
		{Name: "payments", Guaranteed: 15, MaxQueue: 50, Timeout: time.Second, Criticality: decision.Critical},
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
	mux.Handle("GET /home", home(set.Compartment("recommendations"), self+"/fake/recommendations"))
	// Both services are faked in this program: one answers after 10 ms, the other hangs.
	mux.HandleFunc("GET /fake/payments", func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(10 * time.Millisecond)
		fmt.Fprint(w, "paid")
	})
	mux.HandleFunc("GET /fake/recommendations", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
	}
	log.Printf("listening on %s", self)
	return server.Serve(listener)
}
