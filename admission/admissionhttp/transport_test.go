// SPDX-License-Identifier: Apache-2.0

// The client's side: what is sent, what is not, and that a slot comes back.

package admissionhttp_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/admission/admissionhttp"
)

func TestRejectedRequestIsNotSent(t *testing.T) {
	g := newGate(t, "orders", 1)
	g.Close()
	client := &http.Client{Transport: newTransport(t, g, roundTrip(func(*http.Request) (*http.Response, error) {
		t.Error("A4: the request was sent")
		return nil, http.ErrNotSupported
	}))}
	sent := newPayload("a body")
	resp, err := client.Post("http://orders.example", "text/plain", sent) //nolint:noctx // it goes nowhere
	if resp != nil {
		resp.Body.Close()
		t.Errorf("A4: a response: %v", resp.Status)
	}
	var rejected *admission.RejectedError
	if !errors.As(err, &rejected) || *rejected != (admission.RejectedError{Gate: "orders", Reason: admission.Closed, Limit: 1}) {
		t.Errorf("A4: error %v", err)
	}
	if got := sent.closes.Load(); got != 1 {
		t.Errorf("A4: the request's body was closed %d times, want 1", got)
	}
}

func TestNilBaseIsTheDefaultTransport(t *testing.T) {
	s := startServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), false)
	s.Client().Transport = newTransport(t, newGate(t, "orders", 1), nil)
	defer s.Client().CloseIdleConnections()
	wantStatus(t, s, http.StatusOK)
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
