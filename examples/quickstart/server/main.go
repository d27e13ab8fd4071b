// Server protects an HTTP server by a warden, which finds the concurrency limit, serves checkouts first and sheds excess load.
package main

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/console"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	log.Fatal(run(*addr))
}

// compute answers after a fixed amount of CPU work: about 50 ms on a core of its own.
func compute(w http.ResponseWriter, r *http.Request) {
	sum := sha256.Sum256([]byte(r.URL.Path))
	for range 700_000 {
		sum = sha256.Sum256(sum[:])
	}
	fmt.Fprintf(w, "%s %x\n", r.URL.Path, sum)
}

// customers are known by their keys. All who have none, or one that they made up, are as one.
var customers = map[string]string{"k17": "big", "k42": "small"}

// task says whose a request is, and its priority. Its name is that of its route.
func task(r *http.Request) warden.Task {
	t := warden.Task{Tenant: customers[r.Header.Get("X-Api-Key")]}
	if r.URL.Path == "/checkout" {
		t.Priority = decision.Critical
	}
	return t
}

func run(addr string) error {
	w, err := warden.New(warden.Config{})
	if err != nil {
		return err
	}
	go func() { _ = w.Run(context.Background()) }()
	protect, err := wardenhttp.New(w, wardenhttp.Config{Task: task, Timeout: 500 * time.Millisecond})
	if err != nil {
		return err
	}
	page, err := console.New(console.Config{Title: "quick start", Warden: w})
	if err != nil {
		return err
	}
	app := http.NewServeMux()
	app.HandleFunc("GET /search", compute)
	app.HandleFunc("GET /checkout", compute)
	mux := http.NewServeMux()
	// The whole application, with its streams, uploads and downloads.
	mux.Handle("/", protect.Handler(app))
	mux.Handle("GET /console/", http.StripPrefix("/console", page)) // in production: on a listener of its own, on loopback
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	log.Printf("listening on http://%s, console at /console/", listener.Addr())
	return server.Serve(listener)
}
