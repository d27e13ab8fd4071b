// A service as its operators see it: a warden in front of three kinds of requests, a compartment for each in front of a small
// database, and dead letters.

package console

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/console"
	"github.com/stopbank/stopbank/warden/decision"
)

type service struct {
	warden   *warden.Warden
	database *bulkhead.Set
	console  *console.Console
	letters  kept
}

// kept is a store of letters that can be listed.
type kept struct {
	deadletter.Store // nil
	all              atomic.Value
}

// List implements deadletter.Store, without filters.
func (k *kept) List(context.Context, deadletter.Filter) iter.Seq2[deadletter.Letter, error] {
	all, _ := k.all.Load().([]deadletter.Letter)
	return func(yield func(deadletter.Letter, error) bool) {
		for _, l := range all {
			if !yield(l, nil) {
				return
			}
		}
	}
}

// mustNew makes a service; each additional name is a compartment with one slot.
func mustNew(t *testing.T, cfg console.Config, names ...string) *service {
	t.Helper()
	all := []bulkhead.CompartmentConfig{
		{Name: "checkout", Guaranteed: 4, Lendable: 2, Max: 8, MaxQueue: 20, MaxWait: time.Second, Criticality: decision.Critical},
		{Name: "products", Guaranteed: 4, Lendable: 2, Max: 8, MaxQueue: 20, MaxWait: 300 * time.Millisecond},
		{Name: "analytics", Guaranteed: 1, Lendable: 1, Max: 3, MaxQueue: 4, MaxWait: 500 * time.Millisecond,
			Criticality: decision.Background},
	}
	for _, name := range names {
		all = append(all, bulkhead.CompartmentConfig{Name: name, Guaranteed: 1})
	}
	s := new(service)
	var err1, err2, err3 error
	s.warden, err1 = warden.New(warden.Config{})
	s.database, err2 = bulkhead.New(bulkhead.Config{Total: 12 + len(names), Compartments: all})
	cfg.Warden, cfg.Set, cfg.DeadLetters = s.warden, s.database, deadLetters(&s.letters)
	s.console, err3 = console.New(cfg)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	return s
}

// ServeHTTP has the console at /console/.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	http.StripPrefix("/console", s.console).ServeHTTP(w, r)
}

// serve serves operators until the test ends, and returns the address of the page.
func serve(t *testing.T, s *service) string {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(func() { s.console.Close(); server.Close() })
	return server.URL + "/console/"
}
