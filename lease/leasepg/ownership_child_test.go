package leasepg_test

// This file is a member in a process of its own.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/leasepg"
)

const ownershipVariable = "STOPBANK_OWNERSHIP_OF"

var frozen = leasepg.OwnershipConfig{
	Group: "frozen", Partitions: []string{"a", "b", "c", "d"}, Lease: 500 * time.Millisecond,
	Open: func(context.Context, string) (dispatch.Partition, error) { return dispatch.Partition{}, nil },
}

// ownershipChild makes this process a member that says what it works on, if the test started it as one, and does not return then.
func ownershipChild() {
	at := os.Getenv(ownershipVariable)
	if at == "" {
		return
	}
	cfg := frozen
	conn, err := pgx.ParseConfig(at)
	if err == nil {
		cfg.Conn = conn
		var o *leasepg.Ownership
		if o, err = leasepg.NewOwnership(cfg); err == nil {
			ctx, leash := context.WithCancel(context.Background())
			go func() { // whoever started it has it on a leash: an open pipe
				_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
				leash()
			}()
			err = o.Hold(ctx, func(ctx context.Context, p dispatch.Partition) {
				fmt.Println("begins", p.Name)
				<-ctx.Done()
				if errors.Is(context.Cause(ctx), dispatch.ErrLost) {
					fmt.Println("lost", p.Name)
				} else {
					fmt.Println("ends", p.Name)
				}
			})
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
