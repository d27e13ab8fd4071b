// SPDX-License-Identifier: Apache-2.0

// The client's side: what is sent, what is not, and that a slot comes back.

package admissionhttp_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/admission/admissionhttp"
)

// startBody sends the header and a first piece of the body, so that the client has a response.
func startBody(w http.ResponseWriter) {
	_, _ = io.WriteString(w, "begin")
	_ = http.NewResponseController(w).Flush()
}

// through is a client of s whose requests go through g.
func through(t *testing.T, g gate, s *httptest.Server) *http.Client {
	t.Helper()
	return &http.Client{Transport: newTransport(t, g, s.Client().Transport)}
}

func send(t *testing.T, c *http.Client, method, url string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestRejectedRequestIsNotSent(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		var arrived atomic.Int32
		s := serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			arrived.Add(1)
			startBody(w)
		}))
		g := newGate(t, "orders", 1)
		client := through(t, g, s)
		first := send(t, client, http.MethodPost, s.URL)
		for range 3 {
			sent := newPayload("a body")
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, sent)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if resp != nil {
				t.Fatalf("A4: a response: %v", resp.Status)
			}
			var rejected *admission.RejectedError
			var outer *url.Error
			if !errors.Is(err, admission.ErrRejected) || !errors.As(err, &rejected) || !errors.As(err, &outer) {
				t.Fatalf("A4: error %v", err)
			}
			if want := (admission.RejectedError{Gate: "orders", Reason: admission.Saturated, Limit: 1}); *rejected != want {
				t.Errorf("A4: %+v, want %+v", *rejected, want)
			}
			if got := sent.closes.Load(); got != 1 {
				t.Errorf("A4: the request's body was closed %d times, want 1", got)
			}
		}
		first.Body.Close()
		g.wantEmpty(t)
		last := send(t, client, http.MethodPost, s.URL)
		last.Body.Close()
		if got := arrived.Load(); got != 2 {
			t.Errorf("A4: %d requests arrived, want 2", got)
		}
		g.wantEmpty(t)
	})
}

func TestRequestIsPassedOnUnchanged(t *testing.T) {
	for _, closed := range []bool{false, true} {
		g := newGate(t, "orders", 1)
		if closed {
			g.Close()
		}
		req := httptest.NewRequest(http.MethodPost, "/path?q=1", newPayload("body"))
		req.Header.Set("X", "y")
		before := *req
		header := req.Header.Clone()
		rt := newTransport(t, g, roundTrip(func(r *http.Request) (*http.Response, error) {
			if r != req {
				t.Error("another request was sent")
			}
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		}))
		if _, err := rt.RoundTrip(req); (err != nil) != closed {
			t.Errorf("closed %t: %v", closed, err)
		}
		before.Header = header
		if diff := cmp.Diff(before, *req, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
			t.Errorf("closed %t: the request was changed (-want +got)\n%s", closed, diff)
		}
	}
}

func TestCloseIdleConnectionsReachesTheBase(t *testing.T) {
	base := &idler{}
	client := &http.Client{Transport: newTransport(t, newGate(t, "orders", 1), base)}
	client.CloseIdleConnections()
	if base.closed != 1 {
		t.Errorf("called %d times, want 1", base.closed)
	}
	client.Transport = newTransport(t, newGate(t, "orders", 1), struct{ http.RoundTripper }{})
	client.CloseIdleConnections() // the base cannot: nothing happens
}

type idler struct {
	http.RoundTripper
	closed int
}

func (i *idler) CloseIdleConnections() { i.closed++ }

func TestNilBaseIsTheDefaultTransport(t *testing.T) {
	s := startServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), false)
	client := &http.Client{Transport: newTransport(t, newGate(t, "orders", 1), nil)}
	defer client.CloseIdleConnections()
	resp := send(t, client, http.MethodGet, s.URL)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
}

func TestInvalidTransportConfig(t *testing.T) {
	for field, cfg := range map[string]admissionhttp.TransportConfig{
		"TransportConfig.Gate": {Base: http.DefaultTransport},
		"TransportConfig.Base": {Gate: new(admission.Gate), Base: (*http.Transport)(nil)},
	} {
		rt, err := admissionhttp.NewTransport(cfg)
		var invalid *admission.InvalidError
		if rt != nil || !errors.Is(err, admission.ErrInvalid) || !errors.As(err, &invalid) || invalid.Field != field ||
			invalid.Allowed == "" {
			t.Errorf("%s: %v, %v", field, rt, err)
		}
	}
}
