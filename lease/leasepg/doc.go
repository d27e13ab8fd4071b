// SPDX-License-Identifier: Apache-2.0

// Package leasepg runs a dispatch.Consumer on PostgreSQL: a transactional [Outbox] has the records, a [Group] shares its
// partitions out among processes by advisory locks, each partition has a ledger in a table, and [OpenLetters] keeps the dead
// letters.
//
//	pool, err := pgxpool.New(ctx, url)
//	err = leasepg.Migrate(ctx, pool) // once for each release, by a role that may create tables
//	outbox, err := leasepg.OpenOutbox(ctx, leasepg.OutboxConfig{Pool: pool, Name: "orders", Partitions: 16})
//	group, err := leasepg.OpenGroup(ctx, leasepg.GroupConfig{
//		Conn: pool.Config().ConnConfig, Group: "shipping", Outbox: outbox, Ledger: lease.Config{MaxRetries: 5},
//	})
//	letters, err := leasepg.OpenLetters(ctx, leasepg.LettersConfig{Pool: pool, Append: put})
//	consumer, err := dispatch.NewConsumer(group, dispatch.Config{Handler: ship, DeadLetter: deadletter.Keep(letters)})
//	err = consumer.Run(ctx)
//
// A writer calls [Outbox.Enqueue] in the transaction that changes its own tables; put does so with a letter that is replayed:
//
//	func put(ctx context.Context, tx pgx.Tx, _ string, record dispatch.Record) error { return outbox.Enqueue(ctx, tx, record) }
//
// A handler may end its record in the transaction of its own writes, with [SucceedTx]. Who needs a ledger without all that opens
// its store and makes it durable:
//
//	store, err := leasepg.OpenStore(ctx, leasepg.StoreConfig{Pool: pool, Name: "orders/3"})
//	ledger, err := durable.New(durable.Config{Store: store, MaxRetries: 5})
//
// docs/lease-engines.md says how durable an answered call is (a commit of the server), how to recover, and which settings are
// rejected; docs/outbox.md is about Outbox and SucceedTx.
//
// # The table
//
// All ledgers of a database share `stopbank.lease_domains`: one row for each domain of each ledger, with its version and its
// state. A ledger needs no DDL and no rights but to select, insert and update. A ledger is one partition: give each its own name.
//
// A swap is one statement, `UPDATE … WHERE version = old`, in a transaction of its own: one round trip. READ COMMITTED is
// enough for it: a second writer waits for the first one's row lock, reads the row again, finds another version and changes
// nothing. At a stricter default isolation the database rejects the second writer instead, which counts as the same conflict.
//
// Concurrent calls on one Store share statements: where more than sixteen are under way, of which four are being carried out,
// more of them gather, and go together when one of those has ended. A shared swap changes the rows that are where their callers
// believe, passes over locked ones (SKIP LOCKED), and waits for nobody; what it passed over is sent alone.
//
// No index knows a column that a swap changes, so PostgreSQL writes the row's next version on the same page and leaves the indexes
// alone (a HOT update). Ready and Held therefore read, by their index, what was filed at some time, and Compact takes off the list
// what is not filed any more, at most once a minute.
//
// A version is greater than the one before it by a random step. If a failover loses acknowledged versions, they are then not
// given out a second time, and a process that still holds one of them meets a conflict; with steps of one its next swap could
// overwrite another process's state.
//
// # Connections
//
// Each call takes at most one connection of the pool for one statement, and a walk over Ready or Held takes one for each page of
// names and keeps none while its body runs: a pool of one connection serves everything. All statements of a Store work through
// PgBouncer in transaction mode; a Group and Outbox.Listen need the server itself.
package leasepg
