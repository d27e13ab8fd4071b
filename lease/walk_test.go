// SPDX-License-Identifier: Apache-2.0

// Inspect, Ready and Held: calls that only look.

package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stopbank/stopbank/lease"
)

func TestInspectCopies(t *testing.T) {
	m := open(t, lease.Config{})
	acquire(t, m, "A", 1)
	wantStatus(t, m, "A", 2, lease.Enqueued)
	v := inspect(t, m, "A")
	v.Lease.Token, v.Backlog[0] = 0, 99
	if v := inspect(t, m, "A"); v.Lease.Token == 0 || v.Backlog[0] != 2 {
		t.Fatalf("the view is no copy: %+v", v)
	}
	if diff := cmp.Diff(lease.View{Domain: "never seen", Floor: math.MinInt64}, inspect(t, m, "never seen")); diff != "" {
		t.Fatalf("view (-want +got):\n%s", diff)
	}
}

func TestReadyAndHeldYieldUnderNoLock(t *testing.T) {
	m := open(t, lease.Config{})
	for i := range 300 {
		must(m.Offer(ctx, fmt.Sprint("d", i), int64(i)))(t)
	}
	n := 0
	for head, err := range m.Ready(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		a, err := m.AcquireNext(ctx, head.Domain)
		if err != nil || a.Status != lease.Acquired || a.Lease.Offset != head.Offset {
			t.Fatalf("%+v: %+v, %v", head, a, err)
		}
		n++
	}
	for held, err := range m.Held(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		succeed(t, m, held, lease.Completion{Status: lease.NoBacklog})
		n++
	}
	if n != 600 {
		t.Fatalf("%d turns, want 600", n)
	}
	for range m.Held(ctx) {
		t.Fatal("nothing is held any more")
	}
}

// The walk ends when the body stops it or the context ends in its midst.
func TestReadyStops(t *testing.T) {
	m := open(t, lease.Config{})
	for i := range 10 {
		must(m.Offer(ctx, fmt.Sprint("d", i), 1))(t)
	}
	for range m.Ready(ctx) {
		break
	}
	canceled, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	var last error
	n := 0
	for _, last = range m.Ready(canceled) {
		n++
		cancel()
	}
	if n != 2 || !errors.Is(last, context.Canceled) {
		t.Fatalf("%d turns, then %v", n, last)
	}
}
