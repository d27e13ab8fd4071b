// SPDX-License-Identifier: Apache-2.0

package step

import (
	"context"
	"iter"
)

// Index says which of the two lists of a ledger a domain is in.
type Index uint8

// The lists, numbered as durable.Index is.
const (
	Neither Index = iota // nothing is leased and nothing waits
	Ready                // no lease, and a backlog
	Held                 // a lease
)

// Item is a domain in a list.
type Item struct {
	Domain string
	Grant  // the lease of a Held domain; of a Ready one only Offset is set, the backlog's head
}

// Engine keeps the states of a ledger's domains, one Step after another for each domain. lease.FromEngine makes a
// lease.Ledger of it, and calls it with a context that has not ended and a domain of 1 to 65,535 bytes. Every method may be
// called at any time.
type Engine interface {
	// Do carries op out: it sets Fresh, Now and Floor and calls State.Step. With an error the Result is not looked at.
	Do(ctx context.Context, op Op) (Result, error)
	// Compact raises the floor. Error: *FloorError, and the engine's own.
	Compact(ctx context.Context, floor int64) error
	// Inspect returns a copy of a domain's state.
	Inspect(ctx context.Context, domain string) (Snapshot, error)
	// List yields the domains under an index as lease.Ledger's Ready and Held do. An error comes with a zero Item and ends the
	// iteration.
	List(ctx context.Context, index Index) iter.Seq2[Item, error]
}
