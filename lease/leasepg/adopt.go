// SPDX-License-Identifier: Apache-2.0

package leasepg

// The ledgers of a database that are of a log that is another one now can be told to take that for their own.

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/adopt"
)

const askLedgers = `SELECT ledger FROM stopbank.lease_domains WHERE domain = '' ORDER BY ledger`

// Bindings is for leasectl: the ledgers in a database that say of which log they are, elsewhere. It blocks for two statements, and
// one for each ledger. Errors: *lease.InvalidError naming the schema or a setting, or the database's.
func Bindings(ctx context.Context, pool *pgxpool.Pool) ([]adopt.Binding, error) {
	id, err := check(ctx, pool)
	if err != nil {
		return nil, err
	}
	rows, _ := pool.Query(ctx, askLedgers) // rows have the error as well
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	return adopt.Ledgers(ctx, func(yield func(string, durable.Store) bool) {
		for _, name := range names {
			if !yield(name, newStore(StoreConfig{Pool: pool, Name: name}, id)) {
				return
			}
		}
	})
}
