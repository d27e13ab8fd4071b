package main

// The faults of handlers, of some queries, and of partners.

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestFaultsAreParsed(t *testing.T) {
	var f fault
	if err := f.Set("analytics=3s,checkout=1.5s/4,admin=hangs,products=streams,control=hangs,memory=leaks," +
		"memory=cached,database=locked,limiter=closed,priority=critical"); err != nil {
		t.Fatal(err)
	}
	want := fault{control: true, leaked: true, cached: true, locked: true, closed: true, critical: true, given: f.given}
	want.hold[analytics], want.hold[checkout], want.every[checkout] = 3*time.Second, 1500*time.Millisecond, 4
	want.handler[admin], want.handler[products] = hangs, streams
	if f != want {
		t.Errorf("%+v, want %+v", f, want)
	}
	for _, given := range []string{"checkout=1s/x", "checkout=1s/-1", "checkout=-1s", "control=1s", "memory=hangs", "limiter=leaks", "toys=hangs"} {
		before := f
		if err := f.Set(given); !errors.As(err, new(*InvalidError)) || f != before {
			t.Errorf("%s: %v, %+v", given, err, f)
		}
	}
}

// A handler that hangs ends with the shop, not with its client; a stream ends with its client.
func TestHandlersHangAndStream(t *testing.T) {
	s, _ := open(t, protected, "")
	var f fault
	if err := f.Set("admin=hangs,products=streams"); err != nil {
		t.Fatal(err)
	}
	s.deploy(f)
	running := func(n int) func() bool { return func() bool { return s.warden.Limiter().Stats().Running == n } }
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+about[products].path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	req.URL.Path = about[admin].path
	ended := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			err = fmt.Errorf("it answers %s", resp.Status)
		}
		ended <- err
	}()
	until(t, "both run", running(2))
	leave()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("a handler that hangs: %v", err)
	}
	until(t, "the stream is over", running(1))
	if status, text := s.ask(t, checkout); status != http.StatusOK {
		t.Errorf("checkout: %d %s", status, text)
	}
}

// A partner has no more than its share of the reports, and leaves the others theirs.
func TestPartners(t *testing.T) {
	sc := incident()
	sc.acquire, sc.partner = 50*time.Millisecond, 1
	s, _ := openOf(t, sc, divided, "")
	var f fault
	if err := f.Set("analytics=1h"); err != nil { // a query goes on when its caller has timed out
		t.Fatal(err)
	}
	s.deploy(f)
	for i, partner := range []string{"one", "one", "two"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+about[analytics].path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(partnerHeader, partner)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		got := s.set.Snapshot().Compartments[analytics]
		if want := []int{1, 1, 2}[i]; got.InFlight != want || got.Tenants == nil || got.Tenants.Max != 1 {
			t.Errorf("after request %d, of %s, %d are in flight, want %d: %+v", i+1, partner, got.InFlight, want, got.Tenants)
		}
	}
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in 20 s: %s", strings.TrimSpace(what))
		}
	}
}
