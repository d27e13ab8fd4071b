package main

// What goes wrong on purpose does: queries take longer, and control falls silent without taking requests with it.

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
	f.strike(ended, s, time.Hour)
	if s.silent.Load() || s.hold[admin].Load() != 0 {
		t.Error("it comes true although the shop closes")
	}
	for s.warden.Stats().Samples < 2 { // what was never decided does not expire
		time.Sleep(time.Millisecond)
	}
	f.strike(t.Context(), s, 0)
	before := time.Now()
	if status, _, text := call(t, http.MethodGet, s.url+"/admin/counts", "", ""); status != http.StatusOK || time.Since(before) < 300*time.Millisecond {
		t.Errorf("%d %s after %v", status, text, time.Since(before))
	}
	const stale = `stopbank_limiter_decision_stale{limiter="storefront"} 1`
	for !has(t, p, stale) { // it holds for a second
		if status, _, text := call(t, http.MethodGet, s.url+"/products", "", ""); status != http.StatusOK {
			t.Fatalf("%d %s while control is silent", status, text)
		}
	}
}

// has tells whether a scrape has this line.
func has(t *testing.T, p *ops, line string) bool {
	t.Helper()
	_, _, text := call(t, http.MethodGet, p.url+"/metrics", "", "")
	return strings.Contains("\n"+text, "\n"+line+"\n")
}
