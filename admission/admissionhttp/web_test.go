// SPDX-License-Identifier: Apache-2.0

// Servers and clients over loopback.

package admissionhttp_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
)

// startServer serves until the test ends. Panics of handlers are meant here, and not logged.
func startServer(t *testing.T, h http.Handler, http2 bool) *httptest.Server {
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

// post sends a request that no transport sends twice.
func post(t *testing.T, s *httptest.Server) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return s.Client().Do(req)
}

// wantStatus sends a request and reads all of the response.
func wantStatus(t *testing.T, s *httptest.Server, want int) {
	t.Helper()
	resp, err := post(t, s)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != want {
		t.Fatalf("status %d, want %d; %v", resp.StatusCode, want, err)
	}
}

// roundTrip is a base transport.
type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// newRequest returns a request that no server has seen.
func newRequest() *http.Request { return httptest.NewRequest(http.MethodGet, "/", http.NoBody) }
