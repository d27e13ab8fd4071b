package main

// The faults of handlers, of some queries, and of partners.

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
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

// Every fourth query takes long, and no other.
func TestSomeQueriesTakeLong(t *testing.T) {
	s := &shop{}
	var f fault
	if err := f.Set("checkout=2s/4"); err != nil {
		t.Fatal(err)
	}
	s.deploy(f)
	for n := 1; n <= 12; n++ {
		want := time.Duration(0)
		if n%4 == 0 {
			want = 2 * time.Second
		}
		if got := s.holds(checkout); got != want || s.holds(products) != 0 {
			t.Errorf("query %d takes %v, want %v", n, got, want)
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
	running := func() int { return s.warden.Limiter().Stats().Running }
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for _, r := range []route{admin, products} {
		go func() {
			req, err := http.NewRequestWithContext(ctx, about[r].method, s.url+about[r].path, http.NoBody)
			if err == nil {
				var resp *http.Response
				if resp, err = http.DefaultClient.Do(req); err == nil {
					var line [4]byte
					_, _ = resp.Body.Read(line[:])
					if string(line[:]) != "data" {
						t.Errorf("the stream begins with %q", line)
					}
					err = resp.Body.Close()
				}
			}
			ended <- err
		}()
	}
	until(t, "both run", func() bool { return running() == 2 })
	<-ended // the stream's client has read and left
	leave()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("a handler that hangs has answered: %v", err)
	}
	until(t, "the stream is over", func() bool { return running() == 1 })
	if status, text := s.ask(t, checkout); status != http.StatusOK {
		t.Errorf("checkout: %d %s", status, text)
	}
}

// A transaction that nobody ends fails what writes, until the fault is over, and nothing else.
func TestSomebodyLocksTheDatabase(t *testing.T) {
	s, _ := open(t, protected, "")
	asked := func(want int) func() bool {
		return func() bool { status, _ := s.ask(t, checkout); return status == want }
	}
	ctx, stop := context.WithCancel(t.Context())
	var injected sync.WaitGroup
	injected.Go(func() { (&fault{locked: true}).inject(ctx, s, 0) })
	until(t, "no checkout is answered", asked(http.StatusInternalServerError))
	for _, r := range []route{products, admin} {
		if status, text := s.ask(t, r); status != http.StatusOK {
			t.Errorf("%s: %d %s", r, status, text)
		}
	}
	stop()
	injected.Wait()
	until(t, "checkout is answered", asked(http.StatusOK))
}

// A process whose limiter is closed serves on, and rejects each request.
func TestTheLimiterIsClosed(t *testing.T) {
	s, _ := open(t, protected, "")
	(&fault{closed: true}).inject(t.Context(), s, 0)
	for r := range routes {
		if status, text := s.ask(t, r); status != http.StatusServiceUnavailable || !strings.Contains(text, `"closed"`) {
			t.Errorf("%s: %d %s", r, status, text)
		}
	}
}

// Each request of a route becomes critical, and no other.
func TestAllIsCritical(t *testing.T) {
	s := &shop{}
	for _, critical := range []bool{false, true} {
		s.deploy(fault{critical: critical})
		for r := range routes {
			want := about[r].priority
			if critical {
				want = decision.Critical
			}
			req := httptest.NewRequest(about[r].method, about[r].path, http.NoBody)
			if got := s.taskOf(req); got.Priority != want || got.Name != r.String() {
				t.Errorf("%s: %+v, want %v", r, got, want)
			}
		}
		if got := s.taskOf(httptest.NewRequest(http.MethodGet, "/toys", http.NoBody)); got.Priority != decision.Background {
			t.Errorf("no route: %+v", got)
		}
	}
}

// The sessions stay for as long as the fault.
func TestSessionsAreCached(t *testing.T) {
	heap := func() (mib uint64) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc >> 20
	}
	before := heap()
	ctx, stop := context.WithCancel(t.Context())
	var injected sync.WaitGroup
	injected.Go(func() { (&fault{cached: true}).inject(ctx, &shop{}, 0) })
	until(t, "100 MiB are kept", func() bool { return heap() >= before+100 })
	stop()
	injected.Wait()
	if after := heap(); after >= before+100 {
		t.Errorf("%d MiB before the fault and %d MiB after it", before, after)
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
