// Rollout is a service that leaves as Kubernetes needs it: at SIGTERM it stops being ready, goes on serving until everybody knows, then
// closes its listeners, ends what runs and what waits for its place, and exits with 0.
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
	spread := flag.Duration("spread", 5*time.Second, "how long it goes on serving when it is no longer ready")
	places := flag.Int("places", 100, "how many requests may run at most")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *addr, *spread, *places)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// work is what requests are about.
func work(w http.ResponseWriter, r *http.Request) {
	select {
	case <-time.After(200 * time.Millisecond):
		_, _ = io.WriteString(w, "done\n")
	case <-r.Context().Done():
	}
}

// run serves until ctx ends, and then for as long as it takes to leave.
func run(ctx context.Context, out io.Writer, addr string, spread time.Duration, places int) error {
	w, err := warden.New(warden.Config{Control: control.Config{Initial: min(places, 16), Max: places}})
	if err != nil {
		return err
	}
	running, ctx := errgroup.WithContext(ctx) // ctx ends when the process shall leave, or cannot serve
	measuring, stopMeasuring := context.WithCancel(context.WithoutCancel(ctx))
	defer stopMeasuring()
	running.Go(func() error { return w.Run(measuring) })
	mw, err := wardenhttp.New(w, wardenhttp.Config{})
	if err != nil {
		return err
	}

	ready := new(wardenhttp.Readiness)
	mux := http.NewServeMux()
	mux.Handle("GET /readyz", ready) // not under the middleware: it costs nothing, and must not be rejected
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "alive\n") })
	mux.Handle("GET /work", mw.Handler(http.HandlerFunc(work)))
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 20 * time.Second, IdleTimeout: time.Minute,
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

	err = leave(ready, server, spread)
	stopMeasuring()
	err = errors.Join(err, running.Wait())
	w.Limiter().Close()
	fmt.Fprintln(out, "nobody was left behind")
	return err
}

// leave is the order in which a process goes: out of the load balancer, then its listeners, then what runs and what waits.
func leave(ready *wardenhttp.Readiness, server *http.Server, spread time.Duration) error {
	ready.Drain()
	time.Sleep(spread) // probes have to fail, and every proxy has to hear of it: until then requests come, and are served

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second) // below terminationGracePeriodSeconds, less spread
	defer cancel()
	return server.Shutdown(ctx)
}
