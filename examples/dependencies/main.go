// Dependencies is a shop in front of three services that it calls over HTTP, each in a compartment of its own: while one of
// them hangs, what does not need it works as before, and an order that can do without it is taken all the same.
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
		fmt.Fprintf(out, "%s hangs: orders shipped %d, to be shipped later %d, lost %d; stock pages %d\n", broken, n.shipped, n.later, n.lost, n.pages)
	}
	for _, c := range s.set.Snapshot().Compartments {
		fmt.Fprintf(out, "%s: calls that failed or were rejected: %t, answered by the fallback: %d\n", c.Name, c.Outcomes["succeeded"] < c.Submitted, c.Degraded)
	}
	return nil
}

// A shop calls its dependencies, each in the compartment that has its name.
type shop struct {
	set    *bulkhead.Set
	client *http.Client
	deps   map[string]*dependency
}

// open starts three services on the loopback interface, and a shop that knows them.
func open() (*shop, error) {
	// A place is a call that is under way. Eight may wait, for as long as a call may take; then the caller is told.
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

// call asks a dependency. The request ends with ctx, and ctx with the compartment's Timeout: so the place comes back when
// the caller has been told, and not when the dependency pleases.
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

// order needs payment and inventory. Shipping may be arranged later: that is the fallback.
func (s *shop) order(ctx context.Context) (shipped string, err error) {
	for _, needed := range []string{"inventory", "payment"} {
		if _, err := bulkhead.Do(ctx, s.set.Compartment(needed), s.call(needed)); err != nil {
			return "", err
		}
	}
	return bulkhead.DoOr(ctx, s.set.Compartment("shipping"), s.call("shipping"),
		func(context.Context, error) (string, error) { return "later", nil })
}

// page shows what is in stock, and needs inventory alone.
func (s *shop) page(ctx context.Context) (string, error) {
	return bulkhead.Do(ctx, s.set.Compartment("inventory"), s.call("inventory"))
}

type tally struct{ shipped, later, lost, pages int }

// day is eight customers at once, each of whom looks at the stock and orders.
func (s *shop) day() tally {
	var mu sync.Mutex // guards n
	var n tally
	var customers sync.WaitGroup
	for range 8 {
		customers.Go(func() {
			_, noPage := s.page(context.Background())
			shipped, noOrder := s.order(context.Background())
			mu.Lock()
			defer mu.Unlock()
			if noPage == nil {
				n.pages++
			}
			switch {
			case noOrder != nil:
				n.lost++
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

// hang makes one dependency hang, and the others answer.
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
