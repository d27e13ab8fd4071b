// Console is a service and its console, each on a listener of its own: the service on the address that clients know, the
// console on loopback, where nobody else gets. With -load it makes its own traffic, calm and then too much by turns.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/stopbank/stopbank/warden/console"
	"golang.org/x/sync/errgroup"
)

func main() {
	public := flag.String("public", "127.0.0.1:8080", "address of the service")
	private := flag.String("console", "127.0.0.1:6060", "address of the console; keep it from the public")
	load := flag.Bool("load", false, "make traffic")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *public, *private, *load)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, public, private string, load bool) error {
	s, err := newService(console.Config{Title: "storefront eu-1/7"})
	if err != nil {
		return err
	}
	running, ctx := errgroup.WithContext(ctx) // ctx also ends if an address is taken
	running.Go(func() error { return s.warden.Run(ctx) })
	if load {
		running.Go(func() error { s.traffic(ctx); return nil })
		running.Go(func() error { return s.mail(ctx) })
	}

	// Streams never end by themselves: a shutdown has to close them.
	operators := &http.Server{
		Addr: private, Handler: s.private(),
		ReadHeaderTimeout: time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 15 * time.Second, IdleTimeout: time.Minute,
	}
	operators.RegisterOnShutdown(s.console.Close)
	clients := &http.Server{
		Addr: public, Handler: s.public(),
		ReadHeaderTimeout: time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 15 * time.Second, IdleTimeout: time.Minute,
	}

	for _, server := range []*http.Server{operators, clients} {
		running.Go(func() error {
			if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
	}
	fmt.Printf("service on http://%s, console on http://%s/console/\n", public, private)
	<-ctx.Done()
	down, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(operators.Shutdown(down), clients.Shutdown(down), running.Wait())
}
