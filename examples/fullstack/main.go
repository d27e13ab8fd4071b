// Fullstack is the whole of warden around net/http: measure, judge, limit, and say why. With -addr it serves there; without,
// it serves itself a few requests and prints what a client sees.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func main() {
	addr := flag.String("addr", "", "serve at this address until interrupted")
	flag.Parse()
	run := func() error { return show(os.Stdout) }
	if *addr != "" {
		run = func() error { return serve(context.Background(), *addr, shop()) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func shop() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "served ", r.URL.Path) })
	return mux
}

// serve is the whole of it.
func serve(ctx context.Context, addr string, mux http.Handler) error {
	w, err := warden.New(warden.Config{})
	if err != nil {
		return err
	}
	go func() { _ = w.Run(ctx) }() // it ends with ctx, and says nothing else
	mw, err := wardenhttp.New(w, wardenhttp.Config{})
	if err != nil {
		return err
	}
	server := &http.Server{
		Addr: addr, Handler: mw.Handler(mux),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
	}
	return server.ListenAndServe()
}

// what says what a request is: refunds matter most.
func what(r *http.Request) warden.Task {
	task := warden.Task{Name: r.URL.Path}
	if r.URL.Path == "/refund" {
		task.Priority = warden.Critical
	}
	return task
}

func show(out io.Writer) error {
	w, err := warden.New(warden.Config{Interval: 10 * time.Second}) // seldom, so that the same decision rules all the time
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()

	mw, err := wardenhttp.New(w, wardenhttp.Config{Task: what, Rand: func() float64 { return 0 }})
	if err != nil {
		return err
	}
	server := httptest.NewServer(mw.Handler(shop()))
	defer server.Close()
	for _, path := range []string{"/products", "/refund"} {
		if err := get(out, server.URL+path); err != nil {
			return err
		}
	}
	w.Limiter().Close() // as if the service were shutting down: what comes is refused, and told why
	if err := get(out, server.URL+"/products"); err != nil {
		return err
	}
	for _, e := range w.Limiter().Recent() {
		if e.Outcome == limiter.Rejected {
			fmt.Fprintln(out, "recorded:", e.Task.ID, e.Task.Name, e.Reason)
		}
	}
	cancel()
	return <-ended
}

func get(out io.Writer, url string) error {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("X-Request-Id", "4bf92f3577b34da6") // as a gateway in front does, another one each time; without it the middleware makes one
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d %s\n", resp.StatusCode, body)
	return nil
}
