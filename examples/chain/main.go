// Chain is three services, gateway -> orders -> payments, under twice the load that payments can serve. In the first phase,
// clients make up to three attempts and propagate nothing; in the second, they propagate the deadline and the priority of
// each request and retry within a budget. Chain prints the share of answered requests, the wasted work of payments, and the
// path of one rejected request.
//
// Exit codes: 0 the verdict holds, 1 the verdict does not hold or the run failed.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// A scenario is the configuration of both phases.
type scenario struct {
	connections int           // of payments: its maximum concurrency
	hold        time.Duration // time that an execution uses a connection
	load        float64       // relative to the capacity of payments
	patience    time.Duration // timeout of the users, sent with each request
	warm        time.Duration // warm-up of the wardens; its requests are not counted (docs/evidence/first-seconds.md)
	lasts       time.Duration // length of a phase, warm-up included
	seed        uint64
}

func demo() scenario {
	return scenario{
		connections: 8, hold: 40 * time.Millisecond, load: 2, patience: 250 * time.Millisecond,
		warm: 3 * time.Second, lasts: 12 * time.Second, seed: 1,
	}
}

// capacity is the capacity of payments, in requests per second.
func (sc scenario) capacity() float64 { return float64(sc.connections) / sc.hold.Seconds() }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	holds, err := run(ctx, demo(), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if !holds {
		os.Exit(1)
	}
}

// run runs both phases and reports whether the verdict holds.
func run(ctx context.Context, sc scenario, out io.Writer) (bool, error) {
	fmt.Fprintf(out, "gateway -> orders -> payments. Payments has %d connections and uses one for %v per request: its capacity is %.0f requests\n"+
		"a second. Users send %.0f a second and wait up to %v. Two phases of %v; the first %v of each are warm-up and not counted.\n",
		sc.connections, sc.hold, sc.capacity(), sc.load*sc.capacity(), sc.patience, sc.lasts, sc.warm)
	before, err := sc.phase(ctx, false)
	if err != nil {
		return false, err
	}
	after, err := sc.phase(ctx, true)
	if err != nil {
		return false, err
	}
	return sc.report(out, before, after), nil
}

// phase starts the services, sends all requests and stops the services. The returned journal is complete.
func (sc scenario) phase(ctx context.Context, propagate bool) (*journal, error) {
	all := plan(sc.load*sc.capacity(), sc.lasts, sc.seed)
	j := newJournal(all)
	c := &chain{scenario: sc, propagate: propagate, journal: j}
	err := c.open()
	if err == nil {
		err = c.ready(ctx)
	}
	if err == nil {
		follow(ctx, c.services[len(c.services)-1].url, all, sc.patience, j)
		err = ctx.Err()
	}
	return j, errors.Join(err, c.close())
}

// A chain is the three services and their configuration.
type chain struct {
	scenario

	propagate bool
	journal   *journal
	services  []*service // the last one first
}

// open starts the services, the last one first.
//
// The gateway receives requests from the internet: it ignores the priority that they claim and sets its own. The other
// services are reachable only by the service in front of them, so they trust the headers. On a shared network, authenticate
// callers by client certificates instead.
func (c *chain) open() error {
	inside := wardenhttp.Config{
		Task:    func(r *http.Request) warden.Task { return warden.Task{Name: task(r).Name} }, // its priority comes from the caller
		Trusted: func(*http.Request) bool { return true },
	}
	payments, err := c.add("payments", c.connections) // the limit is known: its connections
	if err != nil {
		return err
	}
	if err := payments.serve(inside, c.pay()); err != nil {
		return err
	}
	orders, err := c.inFrontOf(payments, "orders", inside)
	if err != nil {
		return err
	}
	_, err = c.inFrontOf(orders, "gateway", wardenhttp.Config{Task: task})
	return err
}

func (c *chain) add(name string, limit int) (*service, error) {
	s, err := newService(name, limit, c.journal)
	c.services = append(c.services, s)
	return s, err
}

// inFrontOf starts a service that calls another one.
func (c *chain) inFrontOf(next *service, name string, cfg wardenhttp.Config) (*service, error) {
	s, err := c.add(name, 0)
	if err != nil {
		return nil, err
	}
	s.next = naive{&http.Client{Transport: connections(), Timeout: time.Second}}
	if c.propagate {
		if s.next, err = s.resilient(next.name); err != nil {
			return nil, err
		}
	}
	err = s.serve(cfg, s.forward(next.url))
	return s, err
}

// pay is the handler of payments: it holds one of the connections for a while and uses hardly any CPU.
func (c *chain) pay() http.HandlerFunc {
	pool := make(chan struct{}, c.connections)
	return func(w http.ResponseWriter, r *http.Request) {
		c.journal.started(r, "payments")
		select {
		case pool <- struct{}{}:
		case <-r.Context().Done():
			return // the middleware responds with 504
		}
		defer func() { <-pool }()
		c.journal.paying(r)
		select {
		case <-time.After(c.hold):
			_, _ = io.WriteString(w, "paid\n") // fails only if the client has left
		case <-r.Context().Done():
		}
	}
}

// ready checks that every service is ready, as a load balancer does before it sends requests.
func (c *chain) ready(ctx context.Context) error {
	client := &http.Client{Transport: connections(), Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	for _, s := range c.services {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		if err := resp.Body.Close(); err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s is not ready: %s", s.name, resp.Status)
		}
	}
	return nil
}

// close stops the services, the first one first, so that none calls a stopped one.
func (c *chain) close() (err error) {
	for _, s := range slices.Backward(c.services) {
		err = errors.Join(err, s.shutDown())
	}
	return err
}
