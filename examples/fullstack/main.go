// Fullstack is the whole of warden around net/http: measure, judge, limit, and say why. It serves itself a few requests
// and prints what came back.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/limiter"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// protect is the ten lines: every request asks the warden, refunds matter most, and a refusal says why.
func protect(w *warden.Warden, next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		task := warden.Task{Name: r.URL.Path}
		if r.URL.Path == "/refund" {
			task.Priority = warden.Critical
		}
		permit, err := w.Acquire(r.Context(), task)
		if why := (*warden.Rejection)(nil); errors.As(err, &why) {
			http.Error(rw, why.Reason.String(), http.StatusServiceUnavailable)
			return
		}
		defer permit.Release()
		next.ServeHTTP(rw, r)
	})
}

func run(out io.Writer) error {
	w, err := warden.New(warden.Config{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()

	shop := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { fmt.Fprint(rw, "served ", r.URL.Path) })
	server := httptest.NewServer(protect(w, shop))
	defer server.Close()
	for _, path := range []string{"/products", "/refund"} {
		if err := show(out, server.URL+path); err != nil {
			return err
		}
	}
	w.Limiter().Close() // as if the service were shutting down: what comes is refused, and told why
	if err := show(out, server.URL+"/products"); err != nil {
		return err
	}
	for _, e := range w.Limiter().Recent() {
		if e.Outcome == limiter.Rejected {
			fmt.Fprintln(out, "recorded:", e.Task.Name, e.Reason)
		}
	}
	cancel()
	return <-ended
}

func show(out io.Writer, url string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d %q\n", resp.StatusCode, body)
	return nil
}
