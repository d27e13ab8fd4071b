// Rates sends webhooks under two rate limits: 50 per second in total and one per second to each address. A customer with ten
// thousand webhooks does not delay a customer with three.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

func main() {
	if err := send(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// customer returns the customer that an address belongs to.
func customer(address string) string {
	name, _, _ := strings.Cut(address, "/")
	return name
}

// send sends webhooks for two and a half seconds.
func send(out io.Writer) error {
	hooks := new(dispatch.Log)
	for i := range 10_000 {
		hooks.Append(fmt.Sprint("big/", i%2_500), nil)
	}
	for range 3 {
		hooks.Append("small/1", nil)
	}
	ledger, err := lease.NewMemory(lease.Config{MaxRetries: lease.DefaultRetries})
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(context.Background(), 2490*time.Millisecond)
	defer cancel()
	began := time.Now()
	var mu sync.Mutex // guards sent
	sent := map[string]int{}
	addresses := &perKey{limit: 1, burst: 1}
	d, err := dispatch.New(dispatch.Config{
		Ledger:     ledger,
		Source:     hooks,
		DeadLetter: dispatch.Discard,
		Rate:       limited{rate.NewLimiter(50, 5)},
		RateOf:     addresses.Of,
		Owner:      customer,
		Handler: func(_ context.Context, job dispatch.Job) error {
			mu.Lock()
			defer mu.Unlock()
			who := customer(job.Record.Domain)
			sent[who]++
			if who == "small" {
				fmt.Fprintf(out, "small: webhook %d sent in second %d\n", sent[who], time.Since(began)/time.Second)
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	err = d.Run(ctx)
	fmt.Fprintf(out, "big: %d of 10000 webhooks sent\n", sent["big"])
	return err
}
