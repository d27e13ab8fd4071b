// Package leasepg keeps work-lease ledgers in PostgreSQL, and has a transactional [Outbox], consumer groups by advisory locks ([Ownership]) and
// dead letters ([Letters]) there.
//
//	pool, err := pgxpool.New(ctx, url)
//	err = leasepg.Migrate(ctx, pool)
//	store, err := leasepg.New(ctx, leasepg.Config{Pool: pool, Ledger: "orders/3"})
//	ledger, err := durable.New(durable.Config{Store: store, MaxRetries: 5})
//
// docs/lease-engines.md says how durable an answered call is (a commit of the server), how to recover, and which settings New rejects;
// docs/outbox.md is about Outbox and [SucceedTx].
//
// # The table
//
// All ledgers of a database share `stopbank.lease_domains`: one row for each domain of each ledger, with its version and its state. A ledger needs no DDL
// and no rights but to select, insert and update. A ledger is one partition: give each its own name.
//
// A swap is one statement, `UPDATE … WHERE version = old`, in a transaction of its own: one round trip. READ COMMITTED is
// enough for it: a second writer waits for the first one's row lock, reads the row again, finds another version and changes nothing.
// At a stricter default isolation the database rejects the second writer instead, which counts as the same conflict.
//
// Concurrent calls on one Store share statements: where more than sixteen are under way, of which four are being carried out, more of them
// gather, and go together when one of those has ended. A shared swap changes the rows that are where their callers believe, passes over locked ones
// (SKIP LOCKED), and waits for nobody; what it passed over is sent alone.
//
// A version is greater than the one before it by a random step. If a failover loses acknowledged versions, they are then not given out a second time, and
// a process that still holds one of them meets a conflict; with steps of one its next swap could overwrite another process's state.
//
// # Connections
//
// Each call takes at most one connection of the pool for one statement, and a walk over Ready or Held takes one for each page of names and keeps none while
// its body runs: a pool of one connection serves everything. All statements of a Store work through PgBouncer in
// transaction mode; an Ownership and Outbox.Listen need the server itself.
package leasepg
