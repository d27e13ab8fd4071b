// SPDX-License-Identifier: Apache-2.0

// Package adopt has what engines tell leasectl of the logs that their positions and ledgers are of.
package adopt

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
)

// Binding is a position or a ledger that knows which log it is of.
type Binding struct {
	Name string // the partition, or the ledger
	Of   string // the log that it is of
	Is   string // the log that is there now; "": it was not looked for
	Bars error  // why no other log can be adopted; nil: one can
	// Adopt has it take the log that is there, or the one that it is used with next, for its own.
	Adopt func(ctx context.Context) error
}

// Beyond bars a log that ends at end, below a position; nil where it does not.
func Beyond(field string, position, end int64) error {
	if position <= end {
		return nil
	}
	return &lease.InvalidError{Field: field, Value: position,
		Allowed: fmt.Sprintf("at most %d, where the log ends; a mirror that is behind can be adopted when it has caught up", end)}
}

// Ledgers returns those of some durable stores that are of a log, by name. The error is a store's.
func Ledgers(ctx context.Context, stores iter.Seq2[string, durable.Store]) (all []Binding, err error) {
	for name, store := range stores {
		ledger, err := durable.New(durable.Config{Store: store})
		if err != nil {
			return nil, err
		}
		kept, ok := ledger.(interface {
			Bind(ctx context.Context, was, is string) (string, error)
		})
		if !ok {
			return nil, errors.ErrUnsupported
		}
		of, err := kept.Bind(ctx, "", "")
		if err != nil {
			return nil, fmt.Errorf("ledger %s: %w", name, err)
		}
		if of == "" {
			continue
		}
		all = append(all, Binding{Name: name, Of: of, Adopt: func(ctx context.Context) error {
			_, err := kept.Bind(ctx, of, "")
			return err
		}})
	}
	return all, nil
}
