package main

// The program's output, and the limits of a tenant and of the number of tenants.

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
)

func Example() {
	if err := run(os.Stdout); err != nil {
		panic(err)
	}
	// Output:
	// acme: 429, Retry-After 1
	// acme: 429, Retry-After 1
	// acme: 429, Retry-After 1
	// acme: 429, Retry-After 1
	// acme: 429, Retry-After 1
	// acme: 429, Retry-After 1
	// birch, meanwhile: 200
	// cedar, meanwhile: 200
	// acme: 200
	// acme: 200
	// acme: 200
	// acme: 200
	// 53 keys seen, 8 tenants kept, limit 8
}

// TestTenantStaysWithinItsShare: however much one tenant sends, the other slots stay free for the others.
func TestTenantStaysWithinItsShare(t *testing.T) {
	a, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	spike := make(chan response)
	for range 30 {
		go func() { spike <- a.get("acme", "/slow") }()
	}
	for range 26 { // all but two that run and two that queue
		if got := <-spike; got.status != http.StatusTooManyRequests {
			t.Fatal(got)
		}
	}
	c := a.set.Compartment("api").Snapshot()
	if c.InFlight != 2 || c.Queued != 2 || c.Tenants.Active != 1 {
		t.Errorf("in flight %d, queued %d, active %d", c.InFlight, c.Queued, c.Tenants.Active)
	}
	for i := range 20 {
		if got := a.get(fmt.Sprint("other-", i), "/quick"); got.status != http.StatusOK {
			t.Errorf("another tenant: %v", got)
		}
	}
	close(a.finish)
	for range 4 {
		if got := <-spike; got.status != http.StatusOK {
			t.Error(got)
		}
	}
}

// TestLongKeysShareOneTenant: requests with keys above 256 bytes are served and create no tenant.
func TestLongKeysShareOneTenant(t *testing.T) {
	a, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	for i := range 20 {
		if got := a.get(strings.Repeat("x", 257+i), "/quick"); got.status != http.StatusOK {
			t.Error(got)
		}
	}
	if n := a.set.Compartment("api").Snapshot().Tenants; n.Keys != 0 || n.Overflow != 20 {
		t.Errorf("%+v", n)
	}
}
