// Package console shows a service to its operators: a warden in front of three kinds of requests, a compartment for each in front
// of a small database, and the dead letters of its mail. Its tests look at the page in a browser.
package console

import (
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

// private serves operators.
func (s *service) private() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/console/", http.StripPrefix("/console", s.console))
	return mux
}

// operators is the server of a private address. Event streams do not end by themselves: its shutdown closes the console.
func (s *service) operators(private string) *http.Server {
	operators := &http.Server{
		Addr: private, Handler: s.private(),
		ReadHeaderTimeout: time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 15 * time.Second, IdleTimeout: time.Minute,
	}
	operators.RegisterOnShutdown(s.console.Close)
	return operators
}
