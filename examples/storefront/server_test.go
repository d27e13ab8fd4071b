package main

// The shop in HTTP: which rejection becomes which status and reason, and that every route answers.

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
)

// rejecting is a way that answers every request with an error, or lets the fallback answer.
type rejecting struct{ err error }

func (w rejecting) do(ctx context.Context, _ route, _ query, instead fallback) (any, error) {
	if instead != nil {
		return instead(ctx, w.err)
	}
	return nil, w.err
}
func (w rejecting) inUse() string { return "" }
func (w rejecting) close() error  { return nil }

func ask(s *server, method, path string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	req := httptest.NewRequest(method, path, nil)
	req.RemoteAddr = "127.0.0.1:1234"
	s.mux().ServeHTTP(rec, req)
	return rec
}

func TestCountsAreForTheHouse(t *testing.T) {
	for from, want := range map[string]int{"192.0.2.1:1234": http.StatusForbidden, "[2001:db8::1]:1": http.StatusForbidden, "": http.StatusForbidden, "[::1]:1": http.StatusNotFound} {
		rec := httptest.NewRecorder()
		req := httptest.NewRequest("GET", "/admin/counts", nil)
		req.RemoteAddr = from
		newServer(nil, rejecting{sql.ErrNoRows}, 0).mux().ServeHTTP(rec, req)
		if rec.Code != want {
			t.Errorf("from %q: %d, want %d", from, rec.Code, want)
		}
	}
}

func reasonOf(rec *httptest.ResponseRecorder) string {
	var problem struct{ Reason string }
	_ = json.Unmarshal(rec.Body.Bytes(), &problem)
	return problem.Reason
}

func TestRejectionsInHTTP(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		reason string
		retry  bool
	}{
		{&bulkhead.TimeoutError{Compartment: "analytics", Phase: bulkhead.Queued}, http.StatusGatewayTimeout, "timeout_queued", false},
		{&bulkhead.BreakerOpenError{Compartment: "analytics"}, http.StatusServiceUnavailable, "breaker_open", true},
		{errPoolTimeout, http.StatusGatewayTimeout, "pool_timeout", false},
		{sql.ErrNoRows, http.StatusNotFound, "not_found", false},
		{context.Canceled, 499, "canceled", false},
		{errors.New("disk on fire"), http.StatusInternalServerError, "internal", false},
	} {
		for _, path := range []string{"/analytics/report", "/products", "/admin/counts"} { // products has nothing to fall back to yet
			s := newServer(nil, rejecting{c.err}, 0)
			rec := ask(s, "GET", path)
			if strings.Contains(rec.Body.String(), "fire") {
				t.Errorf("%s tells what has gone wrong inside: %s", path, rec.Body)
			}
			if retry := rec.Header().Get("Retry-After") != ""; rec.Code != c.status || reasonOf(rec) != c.reason || retry != c.retry {
				t.Errorf("%s: %v: status %d, reason %q, Retry-After %v", path, c.err, rec.Code, reasonOf(rec), retry)
			}
		}
	}
}

func TestProductsFromTheCache(t *testing.T) {
	s := newServer(nil, rejecting{&bulkhead.TimeoutError{Compartment: "products", Phase: bulkhead.Queued}}, 0)
	var list any = map[string]int64{"product 1": 101}
	s.list.Store(&list)
	rec := ask(s, "GET", "/products")
	if rec.Code != http.StatusOK || rec.Header().Get(cachedHeader) != "timeout_queued" || rec.Body.String() != "{\"product 1\":101}\n" {
		t.Errorf("%d, cached %q: %s", rec.Code, rec.Header().Get(cachedHeader), rec.Body)
	}
}

func TestRoutesAnswer(t *testing.T) {
	for _, kind := range []string{shared, divided, protected} {
		sh, err := openShop(t.Context(), shopConfig{way: kind, scenario: incident(), render: time.Microsecond})
		if err != nil {
			t.Fatal(err)
		}
		s := sh.server
		s.deploy([routes]time.Duration{analytics: time.Millisecond})
		client := newClient()
		answers(t, func(method, path string) *httptest.ResponseRecorder {
			req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			rec := httptest.NewRecorder()
			rec.Code = resp.StatusCode
			_, _ = rec.Body.ReadFrom(resp.Body)
			return rec
		})
		client.CloseIdleConnections()
		if err := sh.close(); err != nil {
			t.Error(err)
		}
	}
}

// answers asks every route of a shop once or twice.
func answers(t *testing.T, ask func(method, path string) *httptest.ResponseRecorder) {
	t.Helper()
	get := func(method, path string) (answer map[string]int64) {
		t.Helper()
		rec := ask(method, path)
		if rec.Code != http.StatusOK {
			t.Fatalf("%s %s: %d %s", method, path, rec.Code, rec.Body)
		}
		if err := json.Unmarshal(rec.Body.Bytes(), &answer); err != nil {
			t.Fatalf("%s: %v", rec.Body, err)
		}
		return answer
	}
	before := get("GET", "/admin/counts")
	if id := get("POST", "/checkout?product=7")["order"]; id != before["orders"]+1 {
		t.Errorf("order %d after %d orders", id, before["orders"])
	}
	if after := get("GET", "/admin/counts"); after["orders"] != before["orders"]+1 || after["users"] != 100 {
		t.Errorf("counts before %v, after one order %v", before, after)
	}
	if list := get("GET", "/products"); len(list) != 20 || list["product 3"] != 103 {
		t.Errorf("products: %v", list)
	}
	if sums := get("GET", "/analytics/report"); len(sums) != 5 {
		t.Errorf("report: %v", sums)
	}
	if rec := ask("POST", "/checkout?product=none"); rec.Code != http.StatusNotFound {
		t.Errorf("an unknown product: %d %s", rec.Code, rec.Body)
	}
	if rec := ask("GET", ping.path()); rec.Code != http.StatusOK {
		t.Errorf("the empty page: %d", rec.Code)
	}
}

func TestShopOnATakenAddress(t *testing.T) {
	s, err := openShop(t.Context(), shopConfig{way: divided, scenario: small()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	if other, err := openShop(t.Context(), shopConfig{way: protected, scenario: small(), address: s.url[len("http://"):]}); err == nil {
		t.Errorf("opened at %s as well", other.url)
	}
}
