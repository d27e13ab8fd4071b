// The service: a warden in front of three kinds of requests, a compartment for each in front of a small database, and the
// console that shows them and the dead letters of the mail.

package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/console"
	"github.com/stopbank/stopbank/warden/decision"
)

// service has the state of both listeners.
type service struct {
	warden   *warden.Warden
	database *bulkhead.Set
	console  *console.Console
	letters  memory
}

// newService makes the service. Tests pass the names of additional compartments.
func newService(cfg console.Config, names ...string) (*service, error) {
	w, err := warden.New(warden.Config{})
	if err != nil {
		return nil, err
	}
	set, err := bulkhead.New(bulkhead.Config{Total: 12 + len(names), Compartments: compartments(names)})
	if err != nil {
		return nil, err
	}
	s := &service{warden: w, database: set}
	cfg.DeadLetters = deadLetters(&s.letters)
	cfg.Warden, cfg.Set = w, set
	c, err := console.New(cfg)
	if err != nil {
		return nil, err
	}
	s.console = c
	return s, nil
}

// compartments divides the database connections among the kinds of requests; each additional name gets one.
func compartments(names []string) []bulkhead.CompartmentConfig {
	all := []bulkhead.CompartmentConfig{
		{Name: "checkout", Guaranteed: 4, Lendable: 2, Max: 8, MaxQueue: 20, MaxWait: time.Second, Criticality: decision.Critical},
		{Name: "products", Guaranteed: 4, Lendable: 2, Max: 8, MaxQueue: 20, MaxWait: 300 * time.Millisecond},
		{Name: "analytics", Guaranteed: 1, Lendable: 1, Max: 3, MaxQueue: 4, MaxWait: 500 * time.Millisecond,
			Criticality: decision.Background},
	}
	for _, name := range names {
		all = append(all, bulkhead.CompartmentConfig{Name: name, Guaranteed: 1})
	}
	return all
}

// public serves clients, without the console.
func (s *service) public() http.Handler {
	mux := http.NewServeMux()
	for _, k := range kinds {
		mux.HandleFunc("GET /"+k.name, func(w http.ResponseWriter, r *http.Request) {
			if err := s.answer(r.Context(), k); err != nil {
				http.Error(w, "busy", http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, k.name)
		})
	}
	return mux
}

// private serves operators.
func (s *service) private() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/console/", http.StripPrefix("/console", s.console))
	return mux
}

// A kind of requests has a priority, a client timeout, a cost and arrival rates.
type kind struct {
	name     string
	priority decision.Priority
	patience time.Duration // client timeout
	compute  time.Duration // CPU time
	query    time.Duration // database time
	calm     float64       // arrivals per second under normal load
	flood    float64       // arrivals per second under overload
}

var kinds = []kind{
	{"checkout", decision.Critical, time.Second, time.Millisecond, 25 * time.Millisecond, 40, 60},
	{"products", decision.Normal, 500 * time.Millisecond, time.Millisecond, 25 * time.Millisecond, 80, 400},
	{"analytics", decision.Background, 2 * time.Second, 4 * time.Millisecond, 90 * time.Millisecond, 10, 60},
}

// answer serves a request.
func (s *service) answer(ctx context.Context, k kind) error {
	ctx, cancel := context.WithTimeout(ctx, k.patience)
	defer cancel()
	_, err := warden.Do(ctx, s.warden, warden.Task{Name: "GET /" + k.name, Priority: k.priority},
		func(ctx context.Context) (int, error) {
			for began := time.Now(); time.Since(began) < k.compute; {
				continue
			}
			return bulkhead.Do(ctx, s.database.Compartment(k.name), func(ctx context.Context) (int, error) {
				select {
				case <-time.After(k.query):
					return 1, nil
				case <-ctx.Done():
					return 0, ctx.Err()
				}
			})
		})
	return err
}
