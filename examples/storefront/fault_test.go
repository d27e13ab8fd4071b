package main

// Injected faults: queries become slower, and a hanging sampler does not affect requests.

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestFault(t *testing.T) {
	s, p := newOperators(t, protected, secret, small())
	var f fault
	if err := f.Set("admin=300ms,control=hangs"); err != nil || f.String() != "admin=300ms,control=hangs" {
		t.Fatal(err, f.String())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	f.inject(ended, s, time.Hour)
	if s.hung.Load() || s.hold[admin].Load() != 0 {
		t.Error("the fault was injected into a closing shop")
	}
	for s.warden.Stats().Samples < 2 { // a decision must exist before it can become stale
		time.Sleep(time.Millisecond)
	}
	f.inject(t.Context(), s, 0)
	before := time.Now()
	if status, _, text := call(t, http.MethodGet, s.url+"/admin/counts", "", ""); status != http.StatusOK || time.Since(before) < 300*time.Millisecond {
		t.Errorf("%d %s after %v", status, text, time.Since(before))
	}
	const stale = `stopbank_limiter_decision_stale{limiter="storefront"} 1`
	for !has(t, p, stale) { // a decision is valid for a second
		if status, _, text := call(t, http.MethodGet, s.url+"/products", "", ""); status != http.StatusOK {
			t.Fatalf("%d %s while the sampler hangs", status, text)
		}
	}
}

// has reports whether a scrape has this line.
func has(t *testing.T, p *ops, line string) bool {
	t.Helper()
	_, _, text := call(t, http.MethodGet, p.url+"/metrics", "", "")
	return strings.Contains("\n"+text, "\n"+line+"\n")
}
