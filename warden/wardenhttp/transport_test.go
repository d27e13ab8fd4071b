// SPDX-License-Identifier: Apache-2.0

// The client's side: what is sent, and what is not.

package wardenhttp_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
)

// through is a client of s whose requests go through g.
func through(t *testing.T, g *guard, s *httptest.Server) *http.Client {
	t.Helper()
	return &http.Client{Transport: newTransport(t, g, s.Client().Transport)}
}

func TestRejectedRequestIsNotSent(t *testing.T) {
	protocols(t, func(t *testing.T, serve func(http.Handler) *httptest.Server) {
		var arrived atomic.Int32
		s := serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			arrived.Add(1)
			_, _ = io.WriteString(w, "a body")
		}))
		g := newGuard(t, 1, 0)
		client := through(t, g, s)
		first := send(t, client, http.MethodPost, s.URL, http.NoBody)
		for range 3 {
			sent := newPayload("a body")
			req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, sent))(t)
			_, err := client.Do(req)
			var rejected *warden.Rejection
			if !errors.Is(err, warden.ErrRejected) || !errors.As(err, &rejected) ||
				rejected.Reason != decision.PressureHigh || rejected.Task.Name != req.URL.Host {
				t.Fatalf("H8: error %v", err)
			}
			if got := sent.closes.Load(); got != 1 {
				t.Errorf("H8: the request's body was closed %d times, want 1", got)
			}
		}
		first.Body.Close()
		g.wantEmpty(t)
		last := send(t, client, http.MethodPost, s.URL, http.NoBody)
		last.Body.Close()
		if got := arrived.Load(); got != 2 {
			t.Errorf("H8: %d requests arrived, want 2", got)
		}
		g.wantEmpty(t)
	})
}

func TestRequestIsPassedOnUnchanged(t *testing.T) {
	for _, limit := range []int{0, 1} {
		g := newGuard(t, limit, 0)
		req := httptest.NewRequest(http.MethodPost, "/path?q=1", newPayload("body"))
		req.Header.Set("X", "y")
		before := *req
		header := req.Header.Clone()
		rt := newTransport(t, g, roundTrip(func(r *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(r.Body)
			if diff := cmp.Diff(header, r.Header); r.URL != req.URL || string(body) != "body" || err != nil || diff != "" {
				t.Errorf("another request was sent: %+v (-want +got)\n%s", r, diff)
			}
			return respond(http.StatusOK, http.NoBody), nil
		}))
		if _, err := rt.RoundTrip(req); (err != nil) != (limit == 0) {
			t.Errorf("limit %d: %v", limit, err)
		}
		before.Header = header
		if req.Body != before.Body {
			t.Errorf("limit %d: the request has another body", limit)
		}
		before.Body, req.Body = nil, nil // it was read
		if diff := cmp.Diff(before, *req, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
			t.Errorf("limit %d: the request was changed (-want +got)\n%s", limit, diff)
		}
	}
}

func TestCloseIdleConnectionsReachesTheBase(t *testing.T) {
	base := &idler{}
	client := &http.Client{Transport: newTransport(t, newGuard(t, 1, 0), base)}
	client.CloseIdleConnections()
	if base.closed != 1 {
		t.Errorf("called %d times, want 1", base.closed)
	}
	client.Transport = newTransport(t, newGuard(t, 1, 0), struct{ http.RoundTripper }{})
	client.CloseIdleConnections() // the base cannot: nothing happens
}

type idler struct {
	http.RoundTripper
	closed int
}

func (i *idler) CloseIdleConnections() { i.closed++ }

func TestNilBaseIsTheDefaultTransport(t *testing.T) {
	s := startServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), false)
	client := &http.Client{Transport: newTransport(t, newGuard(t, 1, 0), nil)}
	defer client.CloseIdleConnections()
	resp := send(t, client, http.MethodGet, s.URL, http.NoBody)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
}

// Whose client forgot to close a body reads that a slot is held for long, in the error of the next request.
func TestABodyThatWasNotClosedShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newTransport(t, newGuard(t, 1, 4), roundTrip(func(*http.Request) (*http.Response, error) {
			return respond(http.StatusOK, newPayload("never closed")), nil
		}))
		client := &http.Client{Transport: rt, Timeout: 12 * time.Second}
		first := send(t, client, http.MethodGet, "http://upstream/", http.NoBody)
		defer first.Body.Close()
		_, err := client.Get("http://upstream/")
		if err == nil || !strings.Contains(err.Error(), "a slot held for 10s or longer") {
			t.Errorf("H8: %v", err)
		}
	})
}
