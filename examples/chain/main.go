// Chain is three services, gateway -> orders -> payments, that are asked for twice what the last one can do: once with clients that
// try three times and carry nothing, once with the deadline and the priority of each request carried through, and retries within
// a budget. It prints what the users got, what payments did for nobody, and the way of one rejected request.
//
// Exit code: 0 the verdict holds, 1 it does not or the run failed.
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

// A scenario is what happens in each phase.
type scenario struct {
	connections int           // of payments: so many executions at a time
	hold        time.Duration // of a connection by an execution
	load        float64       // in capacities
	patience    time.Duration // of users, who tell it
	warm        time.Duration // in which new processes learn what they can do: its requests are not counted (docs/production.md)
	lasts       time.Duration // with warm
	seed        uint64
}

func demo() scenario {
	return scenario{connections: 8, hold: 40 * time.Millisecond, load: 2, patience: 250 * time.Millisecond, warm: 3 * time.Second, lasts: 12 * time.Second, seed: 1}
}

// capacity is how many executions a second payments can do.
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
	fmt.Fprintf(out, "gateway -> orders -> payments, which has %d connections and holds one for %v: %.0f requests a second.\n"+
		"%.0f are asked for, by users who wait %v. Two phases of %v; the first %v of each are not counted.\n",
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

// phase opens the chain, lets the users come and closes it. What it returns is at rest.
func (sc scenario) phase(ctx context.Context, carry bool) (*journal, error) {
	all := plan(sc.load*sc.capacity(), sc.lasts, sc.seed)
	book := newJournal(all)
	c := &chain{scenario: sc, carry: carry, book: book}
	err := c.open()
	if err == nil {
		err = c.ready(ctx)
	}
	if err == nil {
		follow(ctx, c.services[len(c.services)-1].url, all, sc.patience, book)
		err = ctx.Err()
	}
	return book, errors.Join(err, c.close())
}

// A chain is the three services and how they call each other.
type chain struct {
	scenario

	carry    bool
	book     *journal
	services []*service // the last one first
}

// open starts the services, the last one first.
//
// The gateway is where strangers come: it believes nobody who says that he is important, and knows itself what is. The others are
// reached by the service in front of them alone, as their listeners are inside: what comes is trusted. Where a network is
// shared, a client certificate has to say the same.
func (c *chain) open() error {
	inside := wardenhttp.Config{
		Task:    func(r *http.Request) warden.Task { return warden.Task{Name: r.URL.Path} }, // its priority is what the caller says
		Trusted: func(*http.Request) bool { return true },
	}
	payments, err := c.add("payments", c.connections) // a limit that is known is set
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

func (c *chain) add(name string, most int) (*service, error) {
	s, err := newService(name, most, c.book)
	c.services = append(c.services, s)
	return s, err
}

// inFrontOf starts a service that calls another one.
func (c *chain) inFrontOf(next *service, name string, cfg wardenhttp.Config) (*service, error) {
	s, err := c.add(name, 0)
	if err != nil {
		return nil, err
	}
	s.next = forgetful{&http.Client{Transport: connections(), Timeout: time.Second}}
	if c.carry {
		if s.next, err = s.careful(next.name); err != nil {
			return nil, err
		}
	}
	err = s.serve(cfg, s.forward(next.url))
	return s, err
}

// pay is the work of payments: to have one of its connections for a while. That does not depend on the machine's processors.
func (c *chain) pay() http.HandlerFunc {
	pool := make(chan struct{}, c.connections)
	return func(w http.ResponseWriter, r *http.Request) {
		c.book.working(r, "payments")
		select {
		case pool <- struct{}{}:
		case <-r.Context().Done():
			return // there is nobody left to answer: the middleware says 504
		}
		defer func() { <-pool }()
		c.book.paying(r)
		select {
		case <-time.After(c.hold):
			_, _ = io.WriteString(w, "paid\n") // fails only when the client has left
		case <-r.Context().Done():
		}
	}
}

// ready asks every service whether it is, as a balancer does before it sends anybody.
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

// close lets the services leave, the first one first, so that nobody calls one that has left.
func (c *chain) close() (err error) {
	for _, s := range slices.Backward(c.services) {
		err = errors.Join(err, s.leave())
	}
	return err
}
