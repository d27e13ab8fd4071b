// SPDX-License-Identifier: Apache-2.0

// Requests through a real Caddy: who gets a slot, who is rejected and how, and what the upstream is told.

package wardencaddy_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

func TestRejectsWhatDoesNotFit(t *testing.T) {
	u := newUpstream(t)
	p := newProxy(t, `stopbank shop {
		max 1
		initial 1
		queue 1
		exempt /healthz
	}
	`+u.proxied())
	first := p.begin(t.Context(), "/hold")
	await(t, "the first request", u.begun)
	second := p.begin(t.Context(), "/hold")
	p.until(1, "stopbank_limiter_queued", `limiter="shop"`)
	got, waits := rejected(t, second, p.begin(t.Context(), "/hold"))
	reason := got.header.Get("Warden-Rejected")
	if got.status != http.StatusServiceUnavailable || reason == "" || got.header.Get("Retry-After") == "" ||
		!strings.Contains(got.body, `"reason":"`+reason+`"`) {
		t.Errorf("%+v", got)
	}
	p.want("/healthz", http.StatusOK)
	u.answered(t, first, waits)
	p.until(0, "stopbank_limiter_running", `limiter="shop"`)
}

// Of those that wait, the most important one is next, by a matcher or by a placeholder. The upstream is told what counted, and
// what a stranger claims is nothing.
func TestPriorities(t *testing.T) {
	u := newUpstream(t)
	p := newProxy(t, `@batch header Batch *
	map {header.Tier} {tier} {
		gold high
		default normal
	}
	stopbank {
		max 1
		initial 1
		timeout 1m
		priority background @batch
		priority critical /hold/checkout*
		priority {tier}
	}
	`+u.proxied())
	begun := []<-chan answer{p.begin(t.Context(), "/hold")}
	await(t, "the first request", u.begun)
	for i, request := range [][]string{
		{"/hold/checkout/batch", "Batch", "1"}, {"/hold/plain", "Warden-Priority", "critical"}, {"/hold/gold", "Tier", "gold"},
		{"/hold/checkout/1"},
	} {
		begun = append(begun, p.begin(t.Context(), request[0], request[1:]...))
		p.until(float64(i+1), "stopbank_limiter_queued")
	}
	for _, want := range []struct{ path, priority string }{
		{"/hold/checkout/1", "127"}, {"/hold/gold", "64"}, {"/hold/plain", ""}, {"/hold/checkout/batch", "-64"},
	} {
		u.release <- struct{}{}
		r := await(t, want.path, u.begun)
		if r.URL.Path != want.path || r.Header.Get("Warden-Priority") != want.priority {
			t.Errorf("%s with priority %q, want %+v", r.URL.Path, r.Header.Get("Warden-Priority"), want)
		}
		if left := r.Header.Get("Warden-Timeout"); len(left) != 5 { // less than 60,000 ms
			t.Errorf("the upstream is told that %q ms are left", left)
		}
	}
	u.release <- struct{}{}
	for _, a := range begun {
		if got := await(t, "an answer", a); got.status != http.StatusOK {
			t.Errorf("%+v", got)
		}
	}
}

// Only a trusted peer raises its priority. What an address in a header says is nothing.
func TestTrusted(t *testing.T) {
	u := newUpstream(t)
	for networks, want := range map[string]string{"127.0.0.0/8 ::1": "127", "10.0.0.0/8": ""} {
		p := newProxy(t, "stopbank {\n\ttrusted "+networks+"\n}\n"+u.proxied())
		p.want("/", http.StatusOK, "Warden-Priority", "critical", "X-Forwarded-For", "10.0.0.1")
		if got := await(t, "a request", u.begun).Header.Get("Warden-Priority"); got != want {
			t.Errorf("trusted %s: priority %q, want %q", networks, got, want)
		}
	}
}

// A full compartment rejects its own requests, and a tenant that has used up its share is told so by 429.
func TestCompartments(t *testing.T) {
	u := newUpstream(t)
	big, small := []string{"Authorization", "Basic YmlnOng="}, []string{"Authorization", "Basic c21hbGw6eA=="} // with password x
	p := newProxy(t, `basic_auth /hold/* {
		big $2a$04$2IG6yydVoths6NbGw74n4OzKnhelrNb3Ag3XYxaVM16glw/oyFYAy
		small $2a$04$2IG6yydVoths6NbGw74n4OzKnhelrNb3Ag3XYxaVM16glw/oyFYAy
	}
	stopbank shop {
		total 4
		compartment search /hold/search* {
			guaranteed 2
			queue 1
			tenant {http.auth.user.id} 1
		}
		compartment rest {
			guaranteed 2
			priority critical
		}
	}
	`+u.proxied())
	first := p.begin(t.Context(), "/hold/search", big...)
	await(t, "the first search", u.begun)
	more := p.begin(t.Context(), "/hold/search", big...)
	p.until(1, "stopbank_compartment_queued", `compartment="search"`)
	got, waits := rejected(t, more, p.begin(t.Context(), "/hold/search", big...))
	if got.status != http.StatusTooManyRequests || got.header.Get("Warden-Scope") != "tenant" {
		t.Errorf("%+v", got)
	}
	others := p.begin(t.Context(), "/hold/search", small...)
	await(t, "another's search", u.begun)
	p.want("/checkout", http.StatusOK)
	if r := await(t, "the checkout", u.begun); r.Header.Get("Warden-Priority") != "127" {
		t.Errorf("%v", r.Header)
	}
	u.answered(t, first, waits, others)
}

// A dry run and a bypass let everything pass; a dry run counts what it would have rejected.
func TestModes(t *testing.T) {
	u := newUpstream(t)
	for mode, would := range map[string]bool{"dry_run": true, "bypass": false} {
		p := newProxy(t, "stopbank "+mode+" {\n\tmax 1\n\tinitial 1\n\tqueue 1\n\tmode "+mode+"\n}\n"+u.proxied())
		var all []<-chan answer
		for range 4 {
			all = append(all, p.begin(t.Context(), "/hold"))
			await(t, "a request", u.begun)
		}
		if got := p.metric("stopbank_limiter_would_reject_total"); (got > 0) != would {
			t.Errorf("%s: %v would have been rejected", mode, got)
		}
		if log := p.log(); !strings.Contains(log, "stopbank: not enforcing") || !strings.Contains(log, `"mode":"`+mode+`"`) {
			t.Errorf("%s: nobody says so: %s", mode, log)
		}
		u.answered(t, all...)
	}
}

// A client that leaves, or whose time is up, is done with; its slot stays with the upstream, which has not noticed.
func TestSlotStaysWithTheUpstream(t *testing.T) {
	u := newUpstream(t)
	for _, timeout := range []string{"", "timeout 20ms"} {
		p := newProxy(t, "stopbank {\n\t"+timeout+"\n}\n"+u.proxied())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		asks := p.begin(ctx, "/hold")
		await(t, "the request", u.begun)
		if timeout == "" {
			cancel()
			if got := await(t, "the end", asks); !errors.Is(got.err, context.Canceled) {
				t.Errorf("%+v", got)
			}
		} else if got := await(t, "the end", asks); got.status != http.StatusGatewayTimeout ||
			!strings.Contains(got.body, `"reason":"timeout_running"`) || strings.Count(got.body, "{") != 1 {
			t.Errorf("%+v", got)
		}
		if got := p.metric("stopbank_limiter_running"); got != 1 {
			t.Errorf("%q: %v run while the upstream works for nobody", timeout, got)
		}
		u.release <- struct{}{}
		p.until(0, "stopbank_limiter_running")
	}
}

// An upstream that is not there is Caddy's error, and frees the slot. It has failed, although Caddy answers when the middleware is done.
func TestUpstreamThatDies(t *testing.T) {
	u := newUpstream(t)
	p := newProxy(t, "stopbank\n"+u.proxied()+"\nhandle_errors {\n\trespond \"sorry: {err.status_code}\"\n}\n")
	p.want("/", http.StatusOK)
	u.Close()
	if got := p.want("/", http.StatusBadGateway); got.body != "sorry: 502" {
		t.Errorf("%+v", got)
	}
	p.until(0, "stopbank_limiter_running")
	if got := p.metric("stopbank_limiter_failed_total"); got != 1 {
		t.Errorf("%v failed, want 1", got)
	}
}

// Headers from strangers are parsed or ignored: none is an error, and none is trusted.
func TestHeadersFromStrangers(t *testing.T) {
	u := newUpstream(t)
	p := newProxy(t, "stopbank {\n\tpriority {header.X-Priority}\n}\n"+u.proxied())
	for _, headers := range [][]string{
		{"X-Priority", "{http.request.header.X-Priority}"}, {"X-Priority", "200"}, {"X-Priority", strings.Repeat("9", 5000)},
		{"Warden-Priority", "critical"}, {"Warden-Timeout", "-5"}, {"Warden-Timeout", "99999999999999999999"}, {"Priority", "u=9"},
	} {
		p.want("/", http.StatusOK, headers...)
		if got := await(t, "a request", u.begun).Header; got.Get("Warden-Priority") != "" {
			t.Errorf("%.80q: the upstream is told %v", headers, got)
		}
	}
}

// A configuration in JSON is checked as a Caddyfile is.
func TestInvalidJSON(t *testing.T) {
	u := newUpstream(t)
	p := newProxy(t, "stopbank\n"+u.proxied())
	for field, handler := range map[string]map[string]any{
		"stopbank: mode":                         {"mode": "off"},
		"stopbank: priority 1":                   {"priorities": []any{map[string]any{"priority": "urgent"}}},
		"stopbank: trusted":                      {"trusted": []string{"10.0.0.0/33"}},
		"stopbank: max":                          {"max": 1, "min": 2},
		"stopbank: compartment rest: lendable":   {"total": 2, "compartments": []any{map[string]any{"name": "rest", "guaranteed": 2, "lendable": 3}}},
		"stopbank: compartment rest: guaranteed": {"total": 2, "compartments": []any{map[string]any{"name": "rest", "guaranteed": 3}}},
	} {
		handler["handler"] = "stopbank"
		cfg, err := json.Marshal(map[string]any{"admin": map[string]any{"disabled": true, "config": map[string]any{"persist": false}},
			"apps": map[string]any{"http": map[string]any{"servers": map[string]any{"x": map[string]any{
				"listen": []string{p.addr}, "routes": []any{map[string]any{"handle": []any{handler}}},
			}}}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := caddy.Load(cfg, true); err == nil || !strings.Contains(err.Error(), field+" is ") ||
			!strings.Contains(err.Error(), "; allowed: ") {
			t.Errorf("%s: %v", field, err)
		}
		p.want("/", http.StatusOK) // the configuration before it goes on
	}
}

// No client takes what counted here from the upstream by naming it in Connection.
func TestConnectionTakesNothing(t *testing.T) {
	u := newUpstream(t)
	p := newProxy(t, "stopbank {\n\ttimeout 5s\n\tpriority background\n}\n"+u.proxied())
	p.want("/", http.StatusOK, "Connection", "close, warden-priority, X-Own , Warden-Timeout", "X-Own", "1")
	got := await(t, "a request", u.begun).Header
	if got.Get("Warden-Priority") != "-64" || got.Get("Warden-Timeout") == "" || got.Get("X-Own") != "" {
		t.Errorf("the upstream gets %v", got)
	}
}

// A site's blocks come before its stopbank, wherever it is written: it runs for what is in none, and where a block names it.
func TestOrderOfDirectives(t *testing.T) {
	u := newUpstream(t)
	const protects = "stopbank {\n\ttimeout 5s\n}\n"
	blocks := map[string]string{
		"handle /bare/* {\n":       "",
		"handle_path /strip/* {\n": "",
		"route /wrong/* {\n":       u.proxied() + protects,
		"handle /named/* {\n":      u.proxied() + protects,
		"route /right/* {\n":       protects,
	}
	site := []string{u.proxied(), protects}
	for begin, block := range blocks {
		site = append(site, begin, block, u.proxied(), "}\n")
	}
	p := newProxy(t, strings.Join(site, ""))
	for path, protected := range map[string]bool{"/": true, "/bare/": false, "/strip/": false, "/wrong/": false, "/named/": true, "/right/": true} {
		p.want(path, http.StatusOK)
		if got := await(t, "a request", u.begun).Header.Get("Warden-Timeout") != ""; got != protected {
			t.Errorf("%s: protected: %t, want %t", path, got, protected)
		}
	}
}
