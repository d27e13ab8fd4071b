// The service: three kinds of request, under a warden, each with a compartment before one small database, the dead letters of its mail, and the
// console that shows them.

package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/console"
)

// service is what the two listeners share.
type service struct {
	warden   *warden.Warden
	database *bulkhead.Set
	console  *console.Console
	letters  deadletter.Memory
}

// newService makes the service; a title and names that no sane program has are for the tests.
func newService(cfg console.Config, names ...string) (*service, error) {
	w, err := warden.New(warden.Config{})
	if err != nil {
		return nil, err
	}
	set, err := bulkhead.New(bulkhead.Config{Total: 12, Compartments: compartments(names)})
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

// compartments shares the twelve connections of the database among the kinds, and gives further names one each.
func compartments(names []string) []bulkhead.CompartmentConfig {
	all := []bulkhead.CompartmentConfig{
		{Name: "checkout", Guaranteed: 4, Lendable: 2, Max: 8, MaxQueue: 20, MaxWait: time.Second, Criticality: warden.Critical},
		{Name: "products", Guaranteed: 4, Lendable: 2, Max: 8, MaxQueue: 20, MaxWait: 300 * time.Millisecond},
		{Name: "analytics", Guaranteed: 1, Lendable: 1, Max: 3, MaxQueue: 4, MaxWait: 500 * time.Millisecond, Criticality: warden.Background},
	}
	for _, name := range names {
		all = append(all, bulkhead.CompartmentConfig{Name: name, Guaranteed: 1})
	}
	return all
}

// public is for clients. The console is not on it.
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

// private is for operators.
func (s *service) private() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/console/", http.StripPrefix("/console", s.console))
	return mux
}

// A kind of request: how much it matters, how long a client waits for it, and how it is answered.
type kind struct {
	name     string
	priority warden.Priority
	patience time.Duration
	compute  time.Duration // of a processor
	query    time.Duration // of the database
	calm     float64       // arrivals per second
	flood    float64       // the same when there are too many
}

var kinds = []kind{
	{"checkout", warden.Critical, time.Second, time.Millisecond, 25 * time.Millisecond, 40, 60},
	{"products", warden.Normal, 500 * time.Millisecond, time.Millisecond, 25 * time.Millisecond, 80, 400},
	{"analytics", warden.Background, 2 * time.Second, 4 * time.Millisecond, 90 * time.Millisecond, 10, 60},
}

// answer does what a request of this kind asks for.
func (s *service) answer(ctx context.Context, k kind) error {
	ctx, cancel := context.WithTimeout(ctx, k.patience)
	defer cancel()
	_, err := warden.Do(ctx, s.warden, warden.Task{Name: "GET /" + k.name, Priority: k.priority}, func(ctx context.Context) (int, error) {
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
