// Package leasepg keeps a work-lease ledger in PostgreSQL: a durable.Store of one table.
//
//	pool, err := pgxpool.New(ctx, url)
//	err = leasepg.Migrate(ctx, pool)
//	store, err := leasepg.New(ctx, leasepg.Config{Pool: pool, Ledger: "orders/3"})
//	ledger, err := durable.New(durable.Config{Store: store, MaxRetries: 5})
//
// # The table
//
// All ledgers of a database share `stopbank.lease_domains`: one row for each domain of each ledger, with its version and its state. So a
// ledger comes and goes with its name, and takes no DDL and no rights but to select, insert and update. A ledger is one partition: give each its own name.
//
// A swap is one statement, `UPDATE … WHERE version = old`, in a transaction of its own: one round trip. READ COMMITTED is
// enough for it: a second writer waits for the first one's row lock, looks at the row again, finds another version and changes nothing.
// At a stricter default isolation the database refuses the second writer instead, and that is taken for the same conflict.
//
// Calls that are made side by side on one Store share statements: where more than sixteen are under way, of which four are being carried out, more of them
// gather, and go together when one of those has ended. A shared swap changes the rows that are where their callers believe, passes over those that somebody has locked, and waits for
// nobody; what it passed over is sent alone. Who calls alone never waits for others.
//
// A version is greater than the one before it by a random step rather than by one. If a failover loses what was
// acknowledged, the versions that were lost are then not given out a second time, and a process that still believes in one of them meets a
// conflict; with steps of one its next swap could land on somebody else's state.
//
// # What is promised
//
// A swap that was answered is as durable as a commit of the database is. New refuses a connection with synchronous_commit off,
// since a crash would lose tokens that were granted. It cannot see what a server behind it does: with fsync off, or with a replica that lags behind
// and is promoted, acknowledged leases are lost, and with them the fence. docs/lease-engines.md has the whole list.
//
// # Sharing partitions out
//
// An [Ownership] divides partitions among the replicas of a service: whoever holds the advisory lock of a partition works on it. It has a connection of its
// own, which must lead to the server itself.
//
// # Connections
//
// Each call takes at most one connection of the pool for one statement, and a walk over Ready or Held takes one for each page of names and keeps none while
// its body runs: a pool of one connection serves everything. All statements work through PgBouncer in
// transaction mode: with a version that does not carry prepared statements, add default_query_exec_mode=exec to the URL.
package leasepg
