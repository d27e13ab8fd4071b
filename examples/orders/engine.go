// What the pipeline stands on, behind one interface: the story, the replicas and the audit are the same on all engines.

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

// engine is a connection of one process to the servers, for one run.
type engine interface {
	// prepare makes the place that orders are published to.
	prepare(ctx context.Context, o options) error
	// publish appends the orders from i = first to behind: number i+1, which is the payload, is of buyer(o, i). The parent is the only one who
	// does so, and each time it returns before the next.
	publish(ctx context.Context, o options, first, behind int) error
	// register returns the store of the effects.
	register(ctx context.Context) (register, error)
	// group is what a replica becomes a member of; it brings partitions with their ledgers.
	group(ctx context.Context, o options) (dispatch.Ownership, error)
	// remove takes back what the run has made.
	remove(ctx context.Context) error
	close()
}

// register is the store that handlers write to: an account of each customer, and a swap that nobody comes between.
type register interface {
	// load returns an account and its version, which is 0 when there is none yet.
	load(ctx context.Context, customer string) (account, uint64, error)
	// swap writes an account if its version is still the one that was loaded. Any error may mean that it is not.
	swap(ctx context.Context, customer string, a account, version uint64) error
	// swaps is how many there were.
	swaps(ctx context.Context) (int, error)
}

// account is the effect of a customer's orders, and the greatest token under which somebody wrote it.
type account struct {
	Token lease.Token `json:"token"`
	Done  []effect    `json:"done"`
}

type effect struct {
	Order int64       `json:"order"`
	Token lease.Token `json:"token"`
}

// servers are what an engine runs on while the parent lives.
type servers struct {
	at      string // how connect finds them, in whatever process
	about   string
	session time.Duration // the least that they allow
	stop    func() error
}

// engines are all that there are: how the parent finds or starts the servers, and how every process connects to them.
var engines = map[string]struct {
	serve   func(ctx context.Context, o options) (servers, error)
	connect func(ctx context.Context, o options) (engine, error)
}{
	"nats":     {serveNATS, connectNATS},
	"postgres": {servePostgres, connectPostgres},
	"kafka":    {serveKafka, connectKafka},
}

// check refuses options that cannot work.
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

// buyer is the customer of order i, counted from 0. Neighbours are strangers.
func buyer(o options, i int) string { return customer(i * 7919 % o.customers) }

func customer(n int) string { return fmt.Sprintf("customer-%04d", n) }
