// Handler bounds one handler: at most four reports at a time; further requests get 503 immediately.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/admission/admissionhttp"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	log.Fatal(run(*addr))
}

// report takes 200 ms, like a large query.
func report(w http.ResponseWriter, _ *http.Request) {
	time.Sleep(200 * time.Millisecond)
	fmt.Fprintln(w, "report")
}

func run(addr string) error {
	gate, err := admission.New(admission.Config{Name: "reports", Limit: 4})
	if err != nil {
		return err
	}
	bounded, err := admissionhttp.NewHandler(http.HandlerFunc(report), admissionhttp.HandlerConfig{Gate: gate})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /report", bounded)
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		s := gate.Stats()
		fmt.Fprintf(w, "limit %d, in flight %d, admitted %d, rejected %d\n", s.Limit, s.InFlight, s.Admitted, s.Rejected)
	})
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 20 * time.Second, IdleTimeout: time.Minute,
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	log.Printf("listening on http://%s", listener.Addr())
	return server.Serve(listener)
}
