// Rollout is a service that shuts down gracefully under Kubernetes. At SIGTERM it fails readiness and serves until every load
// balancer has noticed; then it closes its listeners, finishes running and queued requests, and exits with 0.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/wardenhttp"
	"golang.org/x/sync/errgroup"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address of the service")
	spread := flag.Duration("spread", 5*time.Second, "how long to serve after readiness has failed")
	limit := flag.Int("limit", 100, "highest concurrency limit, in requests")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *addr, *spread, *limit)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// work answers after 200 ms.
func work(w http.ResponseWriter, r *http.Request) {
	select {
	case <-time.After(200 * time.Millisecond):
		_, _ = io.WriteString(w, "done\n")
	case <-r.Context().Done():
	}
}

// run serves until ctx ends, and then drains.
func run(ctx context.Context, out io.Writer, addr string, spread time.Duration, limit int) error {
	w, err := warden.New(warden.Config{Control: control.Config{Initial: min(limit, 16), Max: limit}})
	if err != nil {
		return err
	}
	running, ctx := errgroup.WithContext(ctx) // ctx ends at SIGTERM, or when a goroutine fails
	measuring, stopMeasuring := context.WithCancel(context.WithoutCancel(ctx))
	defer stopMeasuring()
	running.Go(func() error { return w.Run(measuring) })
	mw, err := wardenhttp.New(w, wardenhttp.Config{})
	if err != nil {
		return err
	}

	ready := new(wardenhttp.Readiness)
	mux := http.NewServeMux()
	mux.Handle("GET /readyz", ready) // outside the middleware: a probe costs nothing and must not be rejected
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "alive\n") })
	mux.Handle("GET /work", mw.Handler(http.HandlerFunc(work)))
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	running.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	fmt.Fprintf(out, "serving on http://%s\n", listener.Addr())
	<-ctx.Done()

	err = drain(ready, server, spread)
	stopMeasuring()
	err = errors.Join(err, running.Wait())
	w.Limiter().Close()
	fmt.Fprintln(out, "shut down: every request was answered")
	return err
}

// drain takes the process out of the load balancer, closes the listeners, and waits for running and queued requests.
func drain(ready *wardenhttp.Readiness, server *http.Server, spread time.Duration) error {
	ready.Drain()
	time.Sleep(spread) // until probes have failed and every proxy knows, requests still arrive and are served

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second) // with spread, less than terminationGracePeriodSeconds
	defer cancel()
	return server.Shutdown(ctx)
}
