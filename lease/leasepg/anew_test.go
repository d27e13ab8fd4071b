// SPDX-License-Identifier: Apache-2.0

package leasepg_test

// An outbox whose ledger is elsewhere is put back, or restored into another table (D13).

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/adopt"
	"github.com/stopbank/stopbank/lease/internal/testkit/ownertest"
	"github.com/stopbank/stopbank/lease/leasepg"
)

func TestOutboxMadeAnew(t *testing.T) { ownertest.MadeAnew(t, nil, remade) }

// remade is an outbox in a database of its own.
func remade(t testing.TB) ownertest.Remade {
	t.Helper()
	pool := fresh(t, 8)
	noError(t, leasepg.Migrate(t.Context(), pool))
	o := must(leasepg.OpenOutbox(t.Context(), leasepg.OutboxConfig{Pool: pool, Name: "o", Partitions: 1, Poll: 10 * time.Millisecond}))(t)
	ledgers := durable.NewMemStore()
	var first int64
	noError(t, pool.QueryRow(t.Context(), "SELECT last_value FROM stopbank.outbox_ids").Scan(&first))
	return ownertest.Remade{
		Join: func() dispatch.Ownership {
			return must(leasepg.OpenGroup(t.Context(), leasepg.GroupConfig{
				Conn: pool.Config().ConnConfig, Group: "g", Session: 500 * time.Millisecond, Names: o.Partitions(),
				OnError: func(error) {},
				Open: func(ctx context.Context, name string) (p dispatch.Partition, err error) {
					ledger, err := durable.New(durable.Config{Store: ledgers, MaxRetries: 100})
					if err != nil {
						return p, err
					}
					return o.Open(ctx, name, ledger)
				},
			}))(t)
		},
		Append: func(domain string, payload []byte) {
			put(t, pool, o, dispatch.Record{Domain: domain, Payload: payload})
		},
		Remake: func() { // as it was in a backup that is as old as the outbox
			execute(t, pool, "TRUNCATE stopbank.outbox_records, stopbank.outbox_positions")
			execute(t, pool, "SELECT setval('stopbank.outbox_ids', $1)", first)
		},
		Mirror: func() {
			for _, statement := range []string{
				"ALTER TABLE stopbank.outbox_records RENAME TO former", "CREATE TABLE stopbank.outbox_records (LIKE stopbank.former INCLUDING ALL)",
				"INSERT INTO stopbank.outbox_records SELECT * FROM stopbank.former", "DROP TABLE stopbank.former",
			} {
				execute(t, pool, statement)
			}
		},
		Adopt: func(ctx context.Context) error {
			all, err := adopt.Ledgers(ctx, func(yield func(string, durable.Store) bool) { yield("o/0", ledgers) })
			if err != nil {
				return err
			}
			if len(all) != 1 || all[0].Of == "" {
				return fmt.Errorf("found: %+v", all)
			}
			return all[0].Adopt(ctx)
		},
	}
}
