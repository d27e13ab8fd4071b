// Tenants is an HTTP API whose slots are shared fairly by its customers. A customer that sends too much gets 429 and the others
// are not affected; a client that invents keys cannot create more tenants than configured.
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

	// Acme sends ten slow requests in parallel. Two run, two queue, six are rejected immediately.
	spike := make(chan response)
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
			return fmt.Errorf("request of a new customer: %v", got)
		}
	}
	t := a.set.Compartment("api").Snapshot().Tenants
	fmt.Fprintf(out, "53 keys seen, %d tenants kept, limit %d\n", t.Keys, t.MaxKeys)
	return nil
}

// An api serves customers, each as a tenant of one compartment.
type api struct {
	set    *bulkhead.Set
	server *httptest.Server
	finish chan struct{} // closed to let slow requests end
}

func open() (*api, error) {
	set, err := bulkhead.New(bulkhead.Config{Total: 4, Compartments: []bulkhead.CompartmentConfig{{
		Name: "api", Guaranteed: 4, MaxQueue: 2, // per tenant
		Tenants: bulkhead.TenantsConfig{Max: 2, Keys: 8},
	}}})
	if err != nil {
		return nil, err
	}
	mw, err := wardenhttp.New(nil, wardenhttp.Config{
		// A real service takes the key from its authentication. Here the client chooses it.
		Compartment: func(r *http.Request) *bulkhead.Compartment {
			return set.Compartment("api").Tenant(r.Header.Get("Api-Key"))
		},
		Rand: func() float64 { return 0 }, // a real service randomizes Retry-After
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

// A response is the part of an HTTP response that this program prints.
type response struct {
	status     int
	retryAfter string
	err        error
}

func (r response) String() string {
	if r.err != nil {
		return r.err.Error()
	}
	if r.retryAfter != "" {
		return fmt.Sprintf("%d, Retry-After %s", r.status, r.retryAfter)
	}
	return fmt.Sprint(r.status)
}

func (a *api) get(key, path string) response {
	req, err := http.NewRequest(http.MethodGet, a.server.URL+path, http.NoBody)
	if err != nil {
		return response{err: err}
	}
	req.Header.Set("Api-Key", key)
	resp, err := a.server.Client().Do(req)
	if err != nil {
		return response{err: err}
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return response{resp.StatusCode, resp.Header.Get("Retry-After"), errors.Join(err, resp.Body.Close())}
}

func (a *api) close() {
	a.server.CloseClientConnections() // cancels slow requests
	a.server.Close()
}
