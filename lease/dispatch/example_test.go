// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file shows the entry points at work, and checks what they print.

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"sync"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

func ExampleNew() {
	_, err := dispatch.New(dispatch.Partition{}, dispatch.Config{})
	fmt.Println(err)
	// Output: lease: dispatch.Partition.Ledger is nil; allowed: a ledger
}

func ExampleDispatcher() {
	orders := new(dispatch.Log)
	for _, customer := range []string{"ann", "ann", "ann"} {
		orders.Append(customer, []byte("an order"))
	}
	ledger, err := lease.NewMemory(lease.Config{MaxRetries: 3})
	if err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	d, err := dispatch.New(dispatch.Partition{Ledger: ledger, Source: orders}, dispatch.Config{
		Handler: func(ctx context.Context, job dispatch.Job) error {
			fmt.Println(job.Record.Domain, job.Record.Offset, string(job.Record.Payload))
			if job.Record.Offset == 2 {
				cancel()
			}
			return nil
		},
		DeadLetter: dispatch.Discard,
	})
	if err != nil {
		log.Fatal(err)
	}
	err = d.Run(ctx) // until ctx is done

	s := d.Stats()
	fmt.Println(err, s.Succeeded, s.Committed)
	// Output:
	// ann 0 an order
	// ann 1 an order
	// ann 2 an order
	// <nil> 3 3
}

// Later is no failure, and ErrPermanent is no retry.
func ExampleLater() {
	mails := new(dispatch.Log)
	mails.Append("ann", []byte("welcome"))
	mails.Append("bob", []byte("no address"))
	ledger, err := lease.NewMemory(lease.Config{MaxRetries: 3})
	if err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	opens := time.Now().Add(10 * time.Millisecond) // the mail server
	d, err := dispatch.New(dispatch.Partition{Ledger: ledger, Source: mails}, dispatch.Config{
		Handler: func(_ context.Context, job dispatch.Job) error {
			switch wait := time.Until(opens); {
			case job.Record.Domain == "bob":
				return fmt.Errorf("%w: %s", dispatch.ErrPermanent, job.Record.Payload)
			case wait > 0:
				return dispatch.Later(wait)
			}
			cancel()
			return nil
		},
		DeadLetter: dispatch.Discard,
	})
	if err != nil {
		log.Fatal(err)
	}
	err = d.Run(ctx)

	s := d.Stats()
	fmt.Println(err, s.Succeeded, "sent,", s.Permanent, "given up,", s.Retried, "retries,", s.Postponed > 0)
	// Output: <nil> 1 sent, 1 given up, 0 retries, true
}

// What was given up goes to DeadLetter, at least once, before the floor passes it.
func ExampleDeadLetter() {
	events := new(dispatch.Log)
	events.Append("ann", []byte("not JSON"))
	ledger, err := lease.NewMemory(lease.Config{}) // no retries
	if err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	d, err := dispatch.New(dispatch.Partition{Ledger: ledger, Source: events}, dispatch.Config{
		Handler: func(context.Context, dispatch.Job) error { return errors.New("bad payload") },
		DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
			fmt.Println(letter.Record.Offset, string(letter.Record.Payload), letter.Err)
			cancel()
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Run(ctx), d.Stats().Committed)
	// Output:
	// 0 not JSON bad payload
	// <nil> 1
}

// interval is a Rate of one attempt in each interval. A *rate.Limiter of golang.org/x/time makes a better one.
type interval struct {
	length time.Duration
	mu     sync.Mutex
	next   time.Time
}

func (i *interval) Delay(now time.Time) time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.next.Sub(now)
}

func (i *interval) Take(now time.Time) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if now.Before(i.next) {
		return false
	}
	i.next = now.Add(i.length)
	return true
}

// A customer with many keys does not crowd out the others: slots, and here attempts of a limited rate, are shared by owner.
func ExampleRate() {
	calls := new(dispatch.Log)
	for _, key := range []string{"acme/1", "acme/2", "acme/3", "bob/1"} {
		calls.Append(key, nil)
	}
	ledger, err := lease.NewMemory(lease.Config{})
	if err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	began := time.Now()
	d, err := dispatch.New(dispatch.Partition{Ledger: ledger, Source: calls}, dispatch.Config{
		MaxInFlight: 1,
		Rate:        &interval{length: 10 * time.Millisecond},
		Owner: func(domain string) string {
			customer, _, _ := strings.Cut(domain, "/")
			return customer
		},
		Handler: func(_ context.Context, job dispatch.Job) error {
			if fmt.Println(job.Record.Domain); job.Record.Domain == "acme/3" {
				cancel()
			}
			return nil
		},
		DeadLetter: dispatch.Discard,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Run(ctx), time.Since(began) >= 30*time.Millisecond)
	// Output:
	// acme/1
	// bob/1
	// acme/2
	// acme/3
	// <nil> true
}
