// Tenants is an HTTP API whose places are divided among its customers: one that sends far too much is told 429, the others
// notice nothing, and a stranger who invents keys makes no more tenants than there is room for.
package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	a, err := open()
	if err != nil {
		return err
	}
	defer a.close()

	// Acme sends ten requests at once that take long. Two run, two wait, six are rejected at once.
	spike := make(chan answer)
	for range 10 {
		go func() { spike <- a.get("acme", "/slow") }()
	}
	for range 6 {
		rejected := <-spike
		fmt.Fprintln(out, "acme:", rejected)
	}
	fmt.Fprintln(out, "birch, meanwhile:", a.get("birch", "/quick"))
	fmt.Fprintln(out, "cedar, meanwhile:", a.get("cedar", "/quick"))
	close(a.finish)
	for range 4 {
		served := <-spike
		fmt.Fprintln(out, "acme:", served)
	}

	for i := range 50 {
		if got := a.get(fmt.Sprintf("invented-%d", i), "/quick"); got.status != http.StatusOK {
			return fmt.Errorf("a new customer: %v", got)
		}
	}
	t := a.set.Compartment("api").Snapshot().Tenants
	fmt.Fprintf(out, "53 keys were seen, %d are told apart, %d could be\n", t.Keys, t.MaxKeys)
	return nil
}

// An api serves customers.
type api struct {
	set    *bulkhead.Set
	server *httptest.Server
	finish chan struct{} // closed: slow requests end
}

func open() (*api, error) {
	set, err := bulkhead.New(bulkhead.Config{Total: 4, Compartments: []bulkhead.CompartmentConfig{{
		Name: "api", Guaranteed: 4, MaxQueue: 2, // of each tenant
		Tenants: bulkhead.TenantsConfig{Max: 2, Keys: 8},
	}}})
	if err != nil {
		return nil, err
	}
	mw, err := wardenhttp.New(nil, wardenhttp.Config{
		// The key of a real service is what its authentication has found out. Here it is what the client says.
		Compartment: func(r *http.Request) *bulkhead.Compartment {
			return set.Compartment("api").Tenant(r.Header.Get("Api-Key"))
		},
		Rand: func() float64 { return 0 }, // a real service spreads Retry-After
	})
	if err != nil {
		return nil, err
	}
	a := &api{set: set, finish: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /quick", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") })
	mux.HandleFunc("GET /slow", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-a.finish:
			fmt.Fprint(w, "served")
		case <-r.Context().Done():
		}
	})
	a.server = httptest.NewServer(mw.Handler(mux))
	return a, nil
}

// An answer is what a customer sees.
type answer struct {
	status     int
	retryAfter string
	err        error
}

func (a answer) String() string {
	if a.err != nil {
		return a.err.Error()
	}
	if a.retryAfter != "" {
		return fmt.Sprintf("%d, Retry-After %s", a.status, a.retryAfter)
	}
	return fmt.Sprint(a.status)
}

func (a *api) get(key, path string) answer {
	req, err := http.NewRequest(http.MethodGet, a.server.URL+path, http.NoBody)
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Api-Key", key)
	resp, err := a.server.Client().Do(req)
	if err != nil {
		return answer{err: err}
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return answer{resp.StatusCode, resp.Header.Get("Retry-After"), errors.Join(err, resp.Body.Close())}
}

func (a *api) close() {
	a.server.CloseClientConnections() // ends what is still slow
	a.server.Close()
}
