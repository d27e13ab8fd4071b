// SPDX-License-Identifier: Apache-2.0

// What the tests share: gates, and servers and clients over loopback.

package admissionhttp_test

import (
	"context"
	"io"
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

// wantEmpty waits until nothing is in flight.
func (g gate) wantEmpty(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // ends a test that hangs
	defer cancel()
	if err := g.Drain(ctx); err != nil {
		t.Fatalf("%v, %+v", err, g.Stats())
	}
}

func newHandler(t *testing.T, g gate, next http.HandlerFunc) http.Handler {
	t.Helper()
	return handlerOf(t, next, admissionhttp.HandlerConfig{Gate: g.Gate})
}

func handlerOf(t *testing.T, next http.Handler, cfg admissionhttp.HandlerConfig) http.Handler {
	t.Helper()
	h, err := admissionhttp.NewHandler(next, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// answer is what a handler answers to newRequest.
func answer(h http.Handler) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, newRequest())
	return rec
}

func newTransport(t *testing.T, g gate, base http.RoundTripper) http.RoundTripper {
	t.Helper()
	rt, err := admissionhttp.NewTransport(admissionhttp.TransportConfig{Gate: g.Gate, Base: base})
	if err != nil {
		t.Fatalf("NewTransport: %v", err)
	}
	return rt
}

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
