package rates

// Webhooks under two rate limits, in virtual time, and the removal of idle keys' limiters.

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// customer returns the customer that an address belongs to.
func customer(address string) string {
	name, _, _ := strings.Cut(address, "/")
	return name
}

// A customer with ten thousand webhooks does not delay a customer with three.
func TestWebhooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hooks := new(dispatch.Log)
		for i := range 10_000 {
			hooks.Append(fmt.Sprint("big/", i%2_500), nil)
		}
		for range 3 {
			hooks.Append("small/1", nil)
		}
		ledger, err := lease.NewMemory(lease.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2490*time.Millisecond)
		defer cancel()
		began := time.Now()
		var mu sync.Mutex // guards big and small
		var big int
		var small []int // seconds
		addresses := &perKey{limit: 1, burst: 1}
		d, err := dispatch.New(dispatch.Partition{Ledger: ledger, Source: hooks}, dispatch.Config{
			DeadLetter: dispatch.Discard,
			Rate:       limited{rate.NewLimiter(50, 5)},
			RateOf:     addresses.Of,
			Owner:      customer,
			Handler: func(_ context.Context, job dispatch.Job) error {
				mu.Lock()
				defer mu.Unlock()
				if customer(job.Record.Domain) == "small" {
					small = append(small, int(time.Since(began)/time.Second))
				} else {
					big++
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Run(ctx); err != nil || !slices.Equal(small, []int{0, 1, 2}) || big != 126 {
			t.Errorf("%v; small: sent in the seconds %d, want one in each; big: %d, want 126", err, small, big)
		}
	})
}

func TestIdleKeysAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &perKey{limit: 1, burst: 3}
		for i := range 100_000 {
			k.Of(fmt.Sprint(i)).Take(time.Now())
			time.Sleep(10 * time.Millisecond)
			if len(k.of) > 300 {
				t.Fatalf("%d limiters, although 100 keys a second are used and a limiter fills in 3 s", len(k.of))
			}
		}
		busy := k.Of("busy")
		for range 3 {
			busy.Take(time.Now())
		}
		for i := range 1000 {
			k.Of(fmt.Sprint("x", i)).Take(time.Now())
		}
		if k.Of("busy").Take(time.Now()) {
			t.Error("a limiter that was not full was removed")
		}
	})
}
