package dispatch_test

// This file shows the entry points at work, and checks what they print.

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

func ExampleNew() {
	_, err := dispatch.New(dispatch.Config{})
	fmt.Println(err)
	// Output: lease: dispatch.Config.Ledger is nil; allowed: a ledger
}

func ExampleDispatcher_Run() {
	orders := new(dispatch.Log)
	for _, customer := range []string{"ann", "ann", "ann"} {
		orders.Append(customer, []byte("an order"))
	}
	ledger, err := lease.NewMemory(lease.Config{MaxRetries: 3})
	if err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	d, err := dispatch.New(dispatch.Config{
		Ledger: ledger,
		Source: orders,
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

// What was given up goes to DeadLetter, at least once, before the floor passes it.
func ExampleDeadLetter() {
	events := new(dispatch.Log)
	events.Append("ann", []byte("not JSON"))
	ledger, _ := lease.NewMemory(lease.Config{})

	ctx, cancel := context.WithCancel(context.Background())
	d, _ := dispatch.New(dispatch.Config{
		Ledger:  ledger,
		Source:  events,
		Handler: func(context.Context, dispatch.Job) error { return errors.New("bad payload") },
		DeadLetter: func(_ context.Context, letter dispatch.DeadLetter) error {
			fmt.Println(letter.Record.Offset, string(letter.Record.Payload), letter.Err)
			cancel()
			return nil
		},
	})
	fmt.Println(d.Run(ctx), d.Stats().Committed)
	// Output:
	// 0 not JSON bad payload
	// <nil> 1
}

// Stats and Event are values for a structured log.
func ExampleStats_LogValue() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	logger.Info("progress", "partition", dispatch.Stats{Name: "orders-3", Floor: 40, Committed: 38, Next: 57, Lag: 60, Buffered: 12, Working: 4, Succeeded: 45})
	logger.Warn("event", "dispatch", dispatch.Event{Kind: dispatch.Fenced, Name: "orders-3", Domain: "ann", Offset: 41, Token: 977})
	// Output:
	// level=INFO msg=progress partition.name=orders-3 partition.floor=40 partition.committed=38 partition.next=57 partition.lag=60 partition.buffered=12 partition.oldest=0s partition.working=4 partition.succeeded=45
	// level=WARN msg=event dispatch.kind=Fenced dispatch.name=orders-3 dispatch.domain=ann dispatch.offset=41 dispatch.token=977
}
