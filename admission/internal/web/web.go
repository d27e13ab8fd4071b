// Package web is what tests over HTTP share: servers and clients over loopback.
package web

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// Patience ends a test that hangs; no test depends on its value.
const Patience = 10 * time.Second

// Protocols runs a test over both Protocols, each on a real server.
func Protocols(t *testing.T, test func(t *testing.T, serve func(http.Handler) *httptest.Server)) {
	for _, http2 := range []bool{false, true} {
		name := "HTTP/1.1"
		if http2 {
			name = "HTTP/2"
		}
		t.Run(name, func(t *testing.T) {
			test(t, func(h http.Handler) *httptest.Server { return StartServer(t, h, http2) })
		})
	}
}

// StartServer serves until the test ends. Panics of handlers are meant here, and not logged.
func StartServer(t *testing.T, h http.Handler, http2 bool) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if http2 {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// Post sends a request that no transport sends twice.
func Post(t *testing.T, s *httptest.Server) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return s.Client().Do(req)
}

// WantStatus sends a request and reads all of the response.
func WantStatus(t *testing.T, s *httptest.Server, want int) *http.Response {
	t.Helper()
	resp, err := Post(t, s)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != want {
		t.Fatalf("status %d, want %d", resp.StatusCode, want)
	}
	return resp
}

// Await waits for an event.
func Await(t *testing.T, what string, event <-chan struct{}) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(Patience):
		t.Fatalf("%s: did not happen", what)
	}
}

// RoundTrip is a base transport.
type RoundTrip func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f RoundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// NewRequest returns a request that no server has seen.
func NewRequest() *http.Request { return httptest.NewRequest(http.MethodGet, "/", http.NoBody) }
