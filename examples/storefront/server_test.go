package main

// The shop in HTTP: which refusal becomes which status, and that every route answers.

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stopbank/stopbank/admission"
)

// refusing is a way that answers every request with an error.
type refusing struct{ err error }

func (w refusing) do(context.Context, route, func(*sql.Conn) error) error { return w.err }
func (w refusing) inUse() string                                          { return "" }
func (w refusing) close() error                                           { return nil }

func ask(s *server, method, path string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	s.mux().ServeHTTP(rec, httptest.NewRequest(method, path, nil))
	return rec
}

func TestRefusalsInHTTP(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		retry  string
	}{
		{&admission.RejectedError{Gate: "analytics", Limit: 15}, http.StatusServiceUnavailable, "1"},
		{errPoolTimeout, http.StatusGatewayTimeout, ""},
		{sql.ErrNoRows, http.StatusNotFound, ""},
		{errors.New("disk on fire"), http.StatusInternalServerError, ""},
	} {
		rec := ask(&server{way: refusing{c.err}}, "GET", "/products")
		if got := rec.Header().Get("Retry-After"); rec.Code != c.status || got != c.retry {
			t.Errorf("%v: status %d, Retry-After %q, want %d, %q", c.err, rec.Code, got, c.status, c.retry)
		}
	}
}

func TestRoutesAnswer(t *testing.T) {
	for _, open := range []openWay{openShared, openIsolated} {
		s := &server{way: newWay(t, open, small())}
		s.deploy(time.Millisecond)
		get := func(method, path string) (answer map[string]int64) {
			t.Helper()
			rec := ask(s, method, path)
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
		if rec := ask(s, "POST", "/checkout?product=none"); rec.Code != http.StatusNotFound {
			t.Errorf("an unknown product: %d %s", rec.Code, rec.Body)
		}
	}
}
