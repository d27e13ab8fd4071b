// The engine interface: faults, replicas and audit are the same on all engines.

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// engine is the connection of one process to the servers, for one run.
type engine interface {
	// prepare creates the stream, table or topic of the orders.
	prepare(ctx context.Context, o options) error
	// publish appends the orders from first to end-1. Order i has the key buyer(o, i) and the payload i+1. Only the parent
	// calls publish, one call at a time.
	publish(ctx context.Context, o options, first, end int) error
	// register returns the store of the effects.
	register(ctx context.Context) (register, error)
	// group joins the consumer group, which assigns partitions with their ledgers.
	group(ctx context.Context, o options) (dispatch.Ownership, error)
	// remove deletes everything that the run created.
	remove(ctx context.Context) error
	close()
}

// register stores the effects: an account for each customer, written by compare-and-swap.
type register interface {
	// load returns an account and its version; version 0 means that it does not exist.
	load(ctx context.Context, customer string) (account, uint64, error)
	// swap writes an account if its version has not changed. An error may be a conflict or a failure.
	swap(ctx context.Context, customer string, a account, version uint64) error
	// swaps is the number of successful swaps.
	swaps(ctx context.Context) (int, error)
}

// account has the effects of a customer's orders and the highest token that has written it.
type account struct {
	Token lease.Token `json:"token"`
	Done  []effect    `json:"done"`
}

type effect struct {
	Order   int64       `json:"order"`
	Token   lease.Token `json:"token"`
	Replica int         `json:"replica"`        // that wrote it
	Back    bool        `json:"back,omitempty"` // the replica had lost its partitions, and has one again
}

// servers are the servers of an engine; they run until stop.
type servers struct {
	at      string        // addresses, for connect
	about   string        // description, for the output
	session time.Duration // minimum session timeout
	stop    func() error
}

// engines are all engines: serve, called by the parent, finds or starts the servers; connect is called by every process.
var engines = map[string]struct {
	serve   func(ctx context.Context, o options) (servers, error)
	connect func(ctx context.Context, o options) (engine, error)
}{
	"nats":     {serveNATS, connectNATS},
	"postgres": {servePostgres, connectPostgres},
	"kafka":    {serveKafka, connectKafka},
}

// check validates the options.
func (o options) check() error {
	if _, known := engines[o.engine]; !known {
		return fmt.Errorf("-engine is %q; allowed: %q", o.engine, slices.Sorted(maps.Keys(engines)))
	}
	if o.replicas < 3 {
		return fmt.Errorf("-replicas is %d; allowed: 3 or more", o.replicas)
	}
	if o.partitions <= o.replicas {
		return fmt.Errorf("-partitions is %d; allowed: more than -replicas, %d", o.partitions, o.replicas)
	}
	return nil
}

// buyer is the customer of order i, counted from 0. Consecutive orders have different customers.
func buyer(o options, i int) string { return customer(i * 7919 % o.customers) }

func customer(n int) string { return fmt.Sprintf("customer-%04d", n) }
