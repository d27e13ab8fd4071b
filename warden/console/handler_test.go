// SPDX-License-Identifier: Apache-2.0

// What is served, under which policy, to which methods, and where it may be mounted.

package console

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func TestServes(t *testing.T) {
	url := mount(t, mustNew(t, Config{Warden: mustWarden(t, new(script))}))
	for path, want := range map[string]struct{ kind, holds string }{
		"":           {"text/html; charset=utf-8", `<meta name="viewport" content="width=device-width, initial-scale=1">`},
		"page.js":    {"text/javascript; charset=utf-8", "EventSource"},
		"draw.js":    {"text/javascript; charset=utf-8", "textContent"},
		"style.css":  {"text/css; charset=utf-8", "prefers-color-scheme: dark"},
		"icon.svg":   {"image/svg+xml", "<svg"},
		"state.json": {"application/json", `"version":1`},
	} {
		answer, body := get(t, url+path)
		if answer.StatusCode != 200 || answer.Header.Get("Content-Type") != want.kind || !strings.Contains(body, want.holds) {
			t.Errorf("%q: %s, %s, %.100s", path, answer.Status, answer.Header.Get("Content-Type"), body)
		}
		head, body := do(t, http.MethodHead, url+path)
		if head.StatusCode != 200 || body != "" || head.Header.Get("Content-Type") != want.kind {
			t.Errorf("HEAD %q: %s, %q", path, head.Status, body)
		}
	}
	if head, body := do(t, http.MethodHead, url+"events"); head.StatusCode != 200 || body != "" ||
		head.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("HEAD events: %s, %q", head.Status, body)
	}
	for _, path := range []string{
		"favicon.ico", "assets/page.html", "page.html", "state", "events/", "../page.js", "%2e%2e/config.go", "/page.js",
	} {
		if answer, body := get(t, url+path); answer.StatusCode == 200 {
			t.Errorf("%q: %s, %.100s", path, answer.Status, body)
		}
	}
	if answer, body := get(t, url+"nothing"); answer.StatusCode != 404 || at(t, decode(t, body), "code") != "not_found" {
		t.Errorf("nothing: %s, %s", answer.Status, body)
	}
}

// TestPolicy: whatever is answered, a page made of it may load nothing from elsewhere, run nothing inline, and be framed by
// nobody.
func TestPolicy(t *testing.T) {
	url := mount(t, mustNew(t, Config{Warden: mustWarden(t, new(script))}))
	for _, path := range []string{"", "page.js", "state.json", "nothing"} {
		answer, _ := get(t, url+path)
		csp := answer.Header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'",
			"img-src 'self'",
			"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'",
			"trusted-types 'none'"} {
			if !strings.Contains("; "+csp+";", "; "+want+";") {
				t.Errorf("%q: the policy %q lacks %q", path, csp, want)
			}
		}
		if strings.Contains(csp, "unsafe") || strings.Contains(csp, "*") {
			t.Errorf("%q: the policy is %q", path, csp)
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
			"Cache-Control":                "no-store",
			"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
			"Access-Control-Allow-Origin": "",
		} {
			if got := answer.Header.Get(name); got != want {
				t.Errorf("%q: %s is %q, want %q", path, name, got, want)
			}
		}
	}
	// And the files need no more than that: nothing inline, nothing absolute, nothing that makes markup of text.
	_, page := get(t, url)
	if found := regexp.MustCompile(
		`(?i)<style|<script[^>]*>[^<]|\son\w+=|\sstyle=|(src|href)="(/|\w+:)`,
	).FindString(page); found != "" {
		t.Errorf("the page has %q", found)
	}
	for _, file := range []string{"page.js", "draw.js", "style.css"} {
		_, text := get(t, url+file)
		text = strings.ReplaceAll(text, "http://www.w3.org/2000/svg", "")
		if found := regexp.MustCompile(
			`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|Function\(|https?:|//\w+\.|@import|url\(`,
		).FindString(text); found != "" {
			t.Errorf("%s has %q", file, found)
		}
	}
}

func TestReadOnly(t *testing.T) {
	url := mount(t, mustNew(t, Config{Warden: mustWarden(t, new(script))}))
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "RESIZE"} {
		for _, path := range []string{"", "state.json", "events", "nothing"} {
			answer, body := do(t, method, url+path)
			if answer.StatusCode != 405 || answer.Header.Get("Allow") != "GET, HEAD" ||
				at(t, decode(t, body), "code") != "read_only" ||
				answer.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s %q: %s, Allow %q, %s", method, path, answer.Status, answer.Header.Get("Allow"), body)
			}
		}
	}
}

// TestMounts: under any prefix, with or without a slash at its end, and at the root; a redirect never leads to another host.
func TestMounts(t *testing.T) {
	c := mustNew(t, Config{Warden: mustWarden(t, new(script))})
	for _, m := range []struct{ prefix, ask, location string }{
		{"", "/", ""},
		{"/console", "/console/", ""},
		{"/a/b", "/a/b/", ""},
		{"/console", "/console", "./console/"},
		{"/a/b", "/a/b?x=//evil.example", "./b/"},
		{"/a:b", "/a:b", "./a:b/"},
		{"//evil.example", "//evil.example", "./evil.example/"},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://localhost"+m.ask, nil)
		r.RequestURI = m.ask
		w := httptest.NewRecorder()
		http.StripPrefix(m.prefix, c).ServeHTTP(w, r)
		if m.location == "" && (w.Code != 200 || !strings.Contains(w.Body.String(), "<!doctype html>")) {
			t.Errorf("%s at %q: %d", m.ask, m.prefix, w.Code)
		}
		if m.location != "" && (w.Code != http.StatusMovedPermanently || w.Header().Get("Location") != m.location) {
			t.Errorf("%s at %q: %d to %q, want %q", m.ask, m.prefix, w.Code, w.Header().Get("Location"), m.location)
		}
	}
}
