// Dependencies is a shop that calls three services over HTTP, each in a bulkhead compartment of its own. While one service
// hangs, requests that do not need it work as before, and orders that can do without it are accepted with a fallback.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	s, err := open()
	if err != nil {
		return err
	}
	defer s.close()
	for _, broken := range []string{"nothing", "shipping", "payment", "nothing"} {
		s.hang(broken)
		n := s.day()
		fmt.Fprintf(out, "hanging: %s; orders shipped %d, shipping postponed %d, failed %d; stock pages %d\n", broken, n.shipped, n.later, n.failed, n.pages)
	}
	for _, c := range s.set.Snapshot().Compartments {
		fmt.Fprintf(out, "%s: failed or rejected calls: %t, fallbacks: %d\n", c.Name, c.Outcomes["succeeded"] < c.Submitted, c.Degraded)
	}
	return nil
}

// A shop calls each dependency in the compartment of the same name.
type shop struct {
	set    *bulkhead.Set
	client *http.Client
	deps   map[string]*dependency
}

// open starts three services on loopback, and a shop that calls them.
func open() (*shop, error) {
	// A slot is one call in flight. Eight more calls may queue, for at most the timeout of a call because MaxWait is 0.
	const timeout, queue = 500 * time.Millisecond, 8
	set, err := bulkhead.New(bulkhead.Config{Total: 9, Compartments: []bulkhead.CompartmentConfig{
		{Name: "payment", Guaranteed: 2, MaxQueue: queue, Timeout: timeout},
		{Name: "inventory", Guaranteed: 5, MaxQueue: queue, Timeout: timeout},
		{Name: "shipping", Guaranteed: 2, MaxQueue: queue, Timeout: timeout},
	}})
	if err != nil {
		return nil, err
	}
	s := &shop{set: set, client: &http.Client{Transport: &http.Transport{}}, deps: map[string]*dependency{}}
	for _, c := range set.Compartments() {
		s.deps[c.Name()] = newDependency()
	}
	return s, nil
}

// call returns a function that calls a dependency. The compartment's Timeout cancels ctx, which aborts the request: a hanging
// dependency does not keep the slot.
func (s *shop) call(name string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.deps[name].server.URL, http.NoBody)
		if err != nil {
			return "", err
		}
		resp, err := s.client.Do(req)
		if err != nil {
			return "", err
		}
		body, err := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusOK {
			err = errors.Join(err, fmt.Errorf("%s: %s", name, resp.Status))
		}
		return string(body), errors.Join(err, resp.Body.Close())
	}
}

// order needs inventory and payment. Shipping can be arranged later: that is the fallback.
func (s *shop) order(ctx context.Context) (shipped string, err error) {
	for _, name := range []string{"inventory", "payment"} {
		if _, err := bulkhead.Do(ctx, s.set.Compartment(name), s.call(name)); err != nil {
			return "", err
		}
	}
	return bulkhead.DoOr(ctx, s.set.Compartment("shipping"), s.call("shipping"),
		func(context.Context, error) (string, error) { return "later", nil })
}

// page shows the stock. It needs inventory alone.
func (s *shop) page(ctx context.Context) (string, error) {
	return bulkhead.Do(ctx, s.set.Compartment("inventory"), s.call("inventory"))
}

type tally struct{ shipped, later, failed, pages int }

// day runs eight customers in parallel; each opens a stock page and places an order.
func (s *shop) day() tally {
	var mu sync.Mutex // guards n
	var n tally
	var customers sync.WaitGroup
	for range 8 {
		customers.Go(func() {
			_, pageErr := s.page(context.Background())
			shipped, orderErr := s.order(context.Background())
			mu.Lock()
			defer mu.Unlock()
			if pageErr == nil {
				n.pages++
			}
			switch {
			case orderErr != nil:
				n.failed++
			case shipped == "later":
				n.later++
			default:
				n.shipped++
			}
		})
	}
	customers.Wait()
	return n
}

// hang makes the named dependency hang and the others answer.
func (s *shop) hang(name string) {
	for n, d := range s.deps {
		d.hangs.Store(n == name)
	}
}

func (s *shop) close() {
	s.client.CloseIdleConnections()
	for _, d := range s.deps {
		d.server.Close()
	}
}
