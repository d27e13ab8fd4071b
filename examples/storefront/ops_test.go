package main

// The operators' server: a plan needs a token, the current revision and valid values; metrics and console respond.

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/limiter"
)

const secret = "a token of operators"

func newOperators(t *testing.T, kind, token string, sc scenario) (*shop, *ops) {
	t.Helper()
	s, p, _ := newLogged(t, kind, token, sc, io.Discard)
	return s, p
}

// newLogged is newOperators with a log.
func newLogged(t *testing.T, kind, token string, sc scenario, log io.Writer) (*shop, *ops, observers) {
	t.Helper()
	o, err := newObservers(log)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openShop(t.Context(), shopConfig{way: kind, scenario: sc, limiter: o.limiter(), set: o.set()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p, err := newOps(l, s, o, token)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
		if err := o.log.Flush(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return s, p, o
}

func call(t *testing.T, method, url, authorization, body string) (status int, header http.Header, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
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
	return resp.StatusCode, resp.Header, string(got)
}

func TestPlan(t *testing.T) {
	s, p := newOperators(t, divided, secret, small())
	const right = "Bearer " + secret
	status, _, text := call(t, "GET", p.url+"/plan", right, "")
	var plan bulkhead.Plan
	if err := json.Unmarshal([]byte(text), &plan); err != nil || status != http.StatusOK || plan.Revision != 1 {
		t.Fatalf("%d: %s", status, text)
	}
	encoded := func(change func(*bulkhead.Plan)) string {
		next := s.set.Plan()
		change(&next)
		b, err := json.Marshal(next)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	same := encoded(func(*bulkhead.Plan) {})
	for _, c := range []struct {
		name, method, authorization, body string
		status                            int
		says                              string
	}{
		{"no token", "POST", "", same, http.StatusUnauthorized, "unauthorized"},
		{"no token, reading", "GET", "", "", http.StatusUnauthorized, "unauthorized"},
		{"another token", "POST", "Bearer another token here", same, http.StatusUnauthorized, "unauthorized"},
		{"a part of it", "POST", right[:len(right)-1], same, http.StatusUnauthorized, "unauthorized"},
		{"an empty one", "POST", "Bearer ", same, http.StatusUnauthorized, "unauthorized"},
		{"another scheme", "POST", secret, same, http.StatusUnauthorized, "unauthorized"},
		{"another method", "DELETE", right, "", http.StatusMethodNotAllowed, "method_not_allowed"},
		{"nothing", "POST", right, "", http.StatusBadRequest, "unreadable"},
		{"no plan", "POST", right, "[]", http.StatusBadRequest, "unreadable"},
		{"no revision", "POST", right, `{"total":11,"compartments":[]}`, http.StatusBadRequest, "revision and total are required"},
		{"a field mistyped", "POST", right, strings.Replace(same, "guaranteed", "guarantee", 1), http.StatusBadRequest, "guarantee"},
		{"a field missing", "POST", right, strings.Replace(same, `"lendable":2,`, "", 1), http.StatusBadRequest, "lendable"},
		{"no mode", "POST", right, strings.Replace(same, `,"mode":"enforce"`, "", 1), http.StatusBadRequest, "mode"},
		{"an unknown mode", "POST", right, strings.Replace(same, `"enforce"`, `"off"`, 1), http.StatusBadRequest, "dry_run"},
		{"two plans", "POST", right, same + same, http.StatusBadRequest, "more than one"},
		{"a plan and a bracket", "POST", right, same + "] anything at all", http.StatusBadRequest, "more than one"},
		{"a plan and a brace", "POST", right, same + "}" + same, http.StatusBadRequest, "more than one"},
		{"too long", "POST", right, `{"revision":` + strings.Repeat(" ", 70<<10) + `1}`, http.StatusBadRequest, "too large"},
		{"a compartment missing", "POST", right, encoded(func(p *bulkhead.Plan) { p.Compartments = p.Compartments[1:] }), http.StatusBadRequest, "without"},
		{"guarantees above the total", "POST", right, encoded(func(p *bulkhead.Plan) { p.Total = 9 }), http.StatusBadRequest, "Plan.Compartments"},
		{"Max below guaranteed", "POST", right, encoded(func(p *bulkhead.Plan) { p.Compartments[0].Max = 1 }), http.StatusBadRequest, `Plan.Compartments[\"checkout\"].Max`},
		{"negative", "POST", right, encoded(func(p *bulkhead.Plan) { p.Compartments[0].Max = -1 }), http.StatusBadRequest, `Plan.Compartments[\"checkout\"].Max`},
		{"another revision", "POST", right, encoded(func(p *bulkhead.Plan) { p.Revision = 7 }), http.StatusConflict, "stale_revision"},
	} {
		status, header, text := call(t, c.method, p.url+"/plan", c.authorization, c.body)
		if status != c.status || !strings.Contains(text, c.says) || header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s, want %d with %q", c.name, status, text, c.status, c.says)
		}
		if asks := header.Get("WWW-Authenticate") != ""; asks != (c.status == http.StatusUnauthorized) {
			t.Errorf("%s: WWW-Authenticate %q", c.name, header.Get("WWW-Authenticate"))
		}
	}
	if now := s.set.Plan(); now.Revision != 1 || s.way.inUse() != "0/7  0/4  0/4  0/2" {
		t.Fatalf("a rejected plan changed something: %+v, pools %s", now, s.way.inUse())
	}
	status, _, text = call(t, "POST", p.url+"/plan", right, encoded(func(p *bulkhead.Plan) { p.Compartments[0].Max = 9 }))
	if status != http.StatusOK || !strings.Contains(text, `"revision":2`) || s.way.inUse() != "0/9  0/4  0/4  0/2" {
		t.Errorf("%d %s, pools %s", status, text, s.way.inUse())
	}
}

// TestMode changes the mode of the limiter, and of a compartment through the plan.
func TestMode(t *testing.T) {
	s, p := newOperators(t, protected, secret, small())
	const right = "Bearer " + secret
	for _, c := range []struct {
		method, authorization, body string
		status                      int
		says                        string
		then                        limiter.Mode
	}{
		{"GET", right, "", http.StatusOK, `{"mode":"enforce"}`, limiter.Enforce},
		{"POST", right, `{"mode":"dry_run"}`, http.StatusOK, `{"mode":"dry_run"}`, limiter.DryRun},
		{"POST", "Bearer another token here", `{"mode":"bypass"}`, http.StatusUnauthorized, "unauthorized", limiter.DryRun},
		{"POST", right, `{"mode":"off"}`, http.StatusBadRequest, "enforce, dry_run or bypass", limiter.DryRun},
		{"POST", right, `{}`, http.StatusBadRequest, "mode is required", limiter.DryRun},
		{"POST", right, `{"mode":"bypass"} {"mode":"enforce"}`, http.StatusBadRequest, "more than one", limiter.DryRun},
		{"DELETE", right, "", http.StatusMethodNotAllowed, "method_not_allowed", limiter.DryRun},
		{"POST", right, `{"mode":"bypass"}`, http.StatusOK, `{"mode":"bypass"}`, limiter.Bypass},
	} {
		status, _, text := call(t, c.method, p.url+"/mode", c.authorization, c.body)
		if now := s.warden.Limiter().Mode(); status != c.status || !strings.Contains(text, c.says) || now != c.then {
			t.Errorf("%s %s: %d %s, mode %s; want %d %s, %s", c.method, c.body, status, text, now, c.status, c.says, c.then)
		}
	}
	plan, err := json.Marshal(s.set.Plan())
	if err != nil {
		t.Fatal(err)
	}
	status, _, text := call(t, "POST", p.url+"/plan", right, strings.Replace(string(plan), `"enforce"`, `"bypass"`, 1))
	if status != http.StatusOK || s.set.Plan().Compartments[0].Mode != limiter.Bypass || s.set.Plan().Compartments[1].Mode != limiter.Enforce {
		t.Errorf("%d %s", status, text)
	}
	_, _, metrics := call(t, "GET", p.url+"/metrics", "", "")
	for _, want := range []string{`stopbank_limiter_mode{limiter="storefront",mode="bypass"} 1`, `mode="bypass",set="database"} 1`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
}

func TestPlanWithoutAToken(t *testing.T) {
	s, p := newOperators(t, protected, "", small())
	for _, authorization := range []string{"", "Bearer ", "Bearer " + secret} {
		for _, method := range []string{"GET", "POST"} {
			for _, path := range []string{"/plan", "/mode"} {
				if status, _, text := call(t, method, p.url+path, authorization, "{}"); status != http.StatusForbidden || !strings.Contains(text, tokenVariable) {
					t.Errorf("%s %s with %q: %d %s", method, path, authorization, status, text)
				}
			}
		}
	}
	if s.set.Plan().Revision != 1 {
		t.Error("the plan was changed")
	}
}

func TestMetricsAndConsole(t *testing.T) {
	for _, kind := range []string{divided, protected} {
		s, p := newOperators(t, kind, secret, small())
		for _, path := range []string{"/products", "/admin/counts"} {
			if status, _, text := call(t, "GET", s.url+path, "", ""); status != http.StatusOK {
				t.Fatalf("%s: %d %s", path, status, text)
			}
		}
		status, _, metrics := call(t, "GET", p.url+"/metrics", "", "")
		wants := []string{`stopbank_compartment_`, `compartment="products"`}
		if kind == protected {
			wants = append(wants, `stopbank_limiter_executed_total{limiter="storefront",priority="normal"} 1`, "stopbank_limiter_execution_seconds_count")
		}
		for _, want := range wants {
			if status != http.StatusOK || !strings.Contains(metrics, want) {
				t.Errorf("%s: %d, no %s in\n%s", kind, status, want, metrics)
			}
		}
		for _, path := range []string{"/console/", "/console/state.json", "/"} {
			if status, _, _ := call(t, "GET", p.url+path, "", ""); status != http.StatusOK {
				t.Errorf("%s: %d", path, status)
			}
			if status, _, _ := call(t, "GET", s.url+path, "", ""); status != http.StatusNotFound {
				t.Errorf("%s is public: %d", path, status)
			}
		}
		if body := []byte(metrics); bytes.Contains(body, []byte(secret)) {
			t.Error("the token is in the metrics")
		}
	}
}
