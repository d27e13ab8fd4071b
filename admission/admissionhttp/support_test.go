// What the tests share: gates, and servers and clients over loopback.

package admissionhttp_test

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/admission/admissionhttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience ends a test that hangs; no test depends on its value.
const patience = time.Minute

// A gate is a gate that knows what a test wants of it.
type gate struct{ *admission.Gate }

func newGate(t *testing.T, name string, limit int) gate {
	t.Helper()
	g, err := admission.New(admission.Config{Name: name, Limit: limit})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return gate{g}
}

func (g gate) wantInFlight(t *testing.T, when string, want int) {
	t.Helper()
	if got := g.InFlight(); got != want {
		t.Errorf("%s: %d in flight, want %d", when, got, want)
	}
}

// wantEmpty waits until nothing is in flight.
func (g gate) wantEmpty(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := g.Drain(ctx); err != nil {
		t.Fatalf("%v, %+v", err, g.Stats())
	}
}

func newHandler(t *testing.T, g gate, next http.HandlerFunc) http.Handler {
	t.Helper()
	h, err := admissionhttp.NewHandler(next, admissionhttp.HandlerConfig{Gate: g.Gate})
	if err != nil {
		t.Fatalf("NewHandler: %v", err)
	}
	return h
}

func newTransport(t *testing.T, g gate, base http.RoundTripper) *admissionhttp.Transport {
	t.Helper()
	rt, err := admissionhttp.NewTransport(admissionhttp.TransportConfig{Gate: g.Gate, Base: base})
	if err != nil {
		t.Fatalf("NewTransport: %v", err)
	}
	return rt
}

// protocols runs a test over both protocols, each on a real server.
func protocols(t *testing.T, test func(t *testing.T, serve func(http.Handler) *httptest.Server)) {
	for _, http2 := range []bool{false, true} {
		name := "HTTP/1.1"
		if http2 {
			name = "HTTP/2"
		}
		t.Run(name, func(t *testing.T) {
			test(t, func(h http.Handler) *httptest.Server { return startServer(t, h, http2) })
		})
	}
}

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
func wantStatus(t *testing.T, s *httptest.Server, want int) *http.Response {
	t.Helper()
	resp, err := post(t, s)
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

// await waits for an event.
func await(t *testing.T, what string, event <-chan struct{}) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(patience):
		t.Fatalf("%s: did not happen", what)
	}
}

// roundTrip is a base transport.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A payload is a body that tells whether it was closed.
type payload struct {
	io.Reader
	closes atomic.Int32
}

func newPayload(s string) *payload { return &payload{Reader: strings.NewReader(s)} }

func (b *payload) Close() error {
	b.closes.Add(1)
	return nil
}

func newRequest() *http.Request { return httptest.NewRequest(http.MethodGet, "/", http.NoBody) }
