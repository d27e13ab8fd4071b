package main

// One shop: what a slow route takes from the others, the fallback, the breaker, plan and mode, injected faults.

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
)

const secret = "a token of operators"

// open opens a small shop and, unless it is shared, its operators' server.
func open(t *testing.T, kind, token string) (s *shop, ops string) {
	t.Helper()
	sc := incident()
	sc.conns = [routes]int{checkout: 5, products: 3, analytics: 2, admin: 1}
	sc.acquire, sc.patience = 100*time.Millisecond, time.Hour
	return openOf(t, sc, kind, token)
}

func openOf(t *testing.T, sc scenario, kind, token string) (s *shop, ops string) {
	t.Helper()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	if kind == shared {
		s, err := sc.open(kind, "127.0.0.1:0", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closed(t, s.close()) })
		return s, ""
	}
	s, operators, log, err := serving{scenario: sc, way: kind, listen: "127.0.0.1:0", token: token}.open(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- operators.Serve(l) }()
	t.Cleanup(func() {
		closed(t, operators.Close())
		<-ended
		closed(t, s.close())
		_ = log.Flush(t.Context()) // the context of the test has ended: the handler writes nowhere
	})
	return s, "http://" + l.Addr().String()
}

func closed(t *testing.T, err error) {
	if err != nil {
		t.Error(err)
	}
}

func call(t *testing.T, method, url, token, body string) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(got)
}

// ask requests a page of the shop.
func (s *shop) ask(t *testing.T, r route) (status int, text string) {
	t.Helper()
	return call(t, about[r].method, s.url+about[r].path, "", "")
}

// occupy keeps n connections of a route busy until end is called.
func occupy(t *testing.T, s *shop, r route, n int) (end func()) {
	t.Helper()
	var running sync.WaitGroup
	release := make(chan struct{})
	held := make(chan struct{})
	for range n {
		running.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			conn, err := s.pools[r].Conn(ctx)
			if err != nil {
				t.Error(err)
			} else {
				defer conn.Close()
			}
			held <- struct{}{}
			<-release
		})
	}
	for range n {
		<-held
	}
	return func() { close(release); running.Wait() }
}

// A slow report takes all connections of a shared pool. With compartments it takes its own, borrowed ones included, and the others
// are not affected; products that are slow are answered with the last list.
func TestWhatASlowRouteTakes(t *testing.T) {
	s, _ := open(t, shared, "")
	end := occupy(t, s, analytics, s.total())
	for r := range routes {
		if status, text := s.ask(t, r); status != http.StatusGatewayTimeout || !strings.Contains(text, "pool_timeout") {
			t.Errorf("%s: %d %s", r, status, text)
		}
	}
	end()
	s, _ = open(t, divided, "")
	_, list := s.ask(t, products)
	for _, full := range []route{analytics, products} {
		var held []bulkhead.Permit
		for range s.set.Plan().Compartments[full].Max {
			_, permit, err := s.set.Compartment(full.String()).Acquire(t.Context())
			if err != nil {
				t.Error(err)
				break
			}
			held = append(held, permit)
		}
		for r := range routes {
			status, text := s.ask(t, r)
			if full == analytics && r == full && (status != http.StatusGatewayTimeout || !strings.Contains(text, "timeout_queued")) {
				t.Errorf("%s is full: %d %s", r, status, text)
			} else if r != analytics && status != http.StatusOK || r == products && text != list {
				t.Errorf("%s while %s is full: %d %s", r, full, status, text)
			}
		}
		for _, permit := range held {
			permit.Release(nil)
		}
	}
	if n := s.set.Compartment("products").Snapshot().Degraded; n != 1 {
		t.Errorf("%d answers of the fallback, want 1", n)
	}
}

func TestPlan(t *testing.T) {
	s, ops := open(t, divided, secret)
	const right = "Bearer " + secret
	encoded := func(change func(*bulkhead.Plan)) string {
		next := s.set.Plan()
		change(&next)
		b, err := json.Marshal(next)
		closed(t, err)
		return string(b)
	}
	same := encoded(func(*bulkhead.Plan) {})
	if status, text := call(t, "GET", ops+"/plan", right, ""); status != http.StatusOK || text != same+"\n" {
		t.Errorf("%d %s", status, text)
	}
	for _, c := range []struct {
		method, token, body string
		status              int
		says                string
	}{
		{"POST", "", same, http.StatusUnauthorized, "unauthorized"},
		{"GET", "Bearer another token here", "", http.StatusUnauthorized, "unauthorized"},
		{"POST", right[:len(right)-1], same, http.StatusUnauthorized, "unauthorized"},
		{"POST", secret, same, http.StatusUnauthorized, "unauthorized"},
		{"DELETE", right, "", http.StatusMethodNotAllowed, "method_not_allowed"},
		{"POST", right, "[]", http.StatusBadRequest, "unreadable"},
		{"POST", right, `{"total":11,"compartments":[]}`, http.StatusBadRequest, `every field is required, as in {\"revision\":0`},
		{"POST", right, strings.Replace(same, "guaranteed", "guarantee", 1), http.StatusBadRequest, "guarantee"},
		{"POST", right, strings.Replace(same, `"lendable":2,`, "", 1), http.StatusBadRequest, "lendable"},
		{"POST", right, strings.Replace(same, `"enforce"`, `"off"`, 1), http.StatusBadRequest, "dry_run"},
		{"POST", right, same + "]", http.StatusBadRequest, "more than one"},
		{"POST", right, `{"revision":` + strings.Repeat(" ", 70<<10) + `1}`, http.StatusBadRequest, "too large"},
		{"POST", right, encoded(func(p *bulkhead.Plan) { p.Compartments[0].Max = 1 }), http.StatusBadRequest,
			`Plan.Compartments[\"checkout\"].Max`},
		{"POST", right, encoded(func(p *bulkhead.Plan) { p.Revision = 7 }), http.StatusConflict, "stale_revision"},
	} {
		if status, text := call(t, c.method, ops+"/plan", c.token, c.body); status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s %.80s: %d %s, want %d with %q", c.method, c.body, status, text, c.status, c.says)
		}
	}
	limit := func() int { return s.pools[checkout].Stats().MaxOpenConnections }
	if s.set.Plan().Revision != 1 || limit() != 7 {
		t.Errorf("a rejected plan changed something: %+v, %d connections", s.set.Plan(), limit())
	}
	status, text := call(t, "POST", ops+"/plan", right, encoded(func(p *bulkhead.Plan) { p.Compartments[0].Max = 9 }))
	if status != http.StatusOK || !strings.Contains(text, `"revision":2`) || limit() != 9 {
		t.Errorf("%d %s, %d connections", status, text, limit())
	}
}

func TestMode(t *testing.T) {
	s, ops := open(t, protected, secret)
	for _, c := range []struct {
		body   string
		status int
		says   string
		then   decision.Mode
	}{
		{`{"mode":"dry_run"}`, http.StatusOK, `{"mode":"dry_run"}`, decision.DryRun},
		{`{"mode":"off"}`, http.StatusBadRequest, "enforce, dry_run or bypass", decision.DryRun},
		{`{}`, http.StatusBadRequest, "mode is required", decision.DryRun},
		{`{"mode":"bypass"}`, http.StatusOK, `{"mode":"bypass"}`, decision.Bypass},
	} {
		status, text := call(t, "POST", ops+"/mode", "Bearer "+secret, c.body)
		if now := s.warden.Limiter().Stats().Mode; status != c.status || !strings.Contains(text, c.says) || now != c.then {
			t.Errorf("%s: %d %s, mode %s; want %d %s, %s", c.body, status, text, now, c.status, c.says, c.then)
		}
	}
	if _, metrics := call(t, "GET", ops+"/metrics", "", ""); !strings.Contains(metrics,
		`stopbank_limiter_mode{limiter="storefront",mode="bypass"} 1`) {
		t.Errorf("no bypass in\n%s", metrics)
	}
	s, ops = open(t, protected, "") // without a token nobody may change anything, nor read it
	for _, path := range []string{"/plan", "/mode"} {
		if status, text := call(t, "GET", ops+path, "Bearer ", ""); status != http.StatusForbidden ||
			!strings.Contains(text, tokenVariable) {
			t.Errorf("%s: %d %s", path, status, text)
		}
		if status, _ := call(t, "GET", s.url+path, "", ""); status != http.StatusNotFound {
			t.Errorf("%s is public: %d", path, status)
		}
	}
}
