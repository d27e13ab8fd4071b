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
// docs/outbox.md is about Outbox and SucceedTx.
//
// # Durability
//
// An answered call is as durable as a commit of the server:
//
//	setting                                    crash of the server  failover
//	defaults, asynchronous replica             nothing lost         fencing tokens lost
//	synchronous_commit = local                 nothing lost         fencing tokens lost
//	synchronous_standby_names, and
//	synchronous_commit = on or remote_apply    nothing lost         nothing lost, if a synchronous standby is promoted
//	synchronous_commit = off                   rejected (a lease.InvalidError)
//	fsync = off                                the table may be garbage; not checked
//
// Where tokens were lost, the new primary may lease work that a holder still has, under a token that is not greater. Use a
// synchronous standby, or stop all workers before one starts again.
//
// # How to recover
//
//   - The server restarts, or a worker died: do nothing. Without dispatch, list Held, Reclaim each lease of the dead, and Fail
//     it unless it is Released.
//   - A row is damaged (durable.ErrCorrupt): restore it from a backup of the same table, with its version or a higher one.
//     Never delete a row: what its domain has done above the floor would be done again.
//   - The database was restored: stop all workers, and Compact to what was committed upstream before the first starts. An outbox
//     that is behind its ledger is rewound: see docs/outbox.md.
//   - The log of a ledger was replaced by its mirror: "leasectl adopt".
//
// To look inside:
//
//	SELECT convert_from(domain, 'UTF8'), version FROM stopbank.lease_domains WHERE ledger = 'orders/3' AND listed AND filed = 2 -- held
//	SELECT ledger, claim, entries FROM stopbank.lease_journals -- of those written per window
//
// # Long snapshots
//
// A transaction that stays open (pg_dump, a report, a session idle in transaction, a prepared transaction, a standby with
// hot_standby_feedback) keeps dead row versions, and slows every ledger of the database down:
//
//	SELECT pid, usename, state, age(backend_xmin), xact_start FROM pg_stat_activity
//	WHERE backend_xmin IS NOT NULL ORDER BY age(backend_xmin) DESC
//
// Against it:
//
//   - Set idle_in_transaction_session_timeout = '1min', and run reports on a standby without hot_standby_feedback.
//   - On stopbank.lease_domains set autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000 and
//     autovacuum_vacuum_cost_delay = 0, and in the server autovacuum_naptime = '10s'.
//   - Afterwards run REINDEX TABLE CONCURRENTLY stopbank.lease_domains.
//
// # Groups
//
// The session that holds a partition's advisory lock owns the partition. When a process dies, its locks are free as soon as
// the server sees the connection close. When a process, machine or network freezes, the server ends the session after Session
// (idle_session_timeout, PostgreSQL 14 or newer), and a member that still runs ends its work earlier. After a failover a
// member of the old primary may continue for a Session.
//
// # Rights
//
// [Migrate] needs the right to create a schema. At run time a role needs USAGE on the schema stopbank, SELECT on its tables,
// and INSERT and UPDATE on lease_domains and, for dead letters, dead_letters. To open an outbox and enqueue into it, it needs
// SELECT and USAGE on the sequence outbox_ids, and INSERT on outboxes and outbox_records; to read it, also INSERT and UPDATE on
// outbox_positions and DELETE on outbox_records; with GroupConfig.Journal also INSERT and UPDATE on lease_journals and
// lease_finished, and INSERT and DELETE on lease_entries.
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
// believe, passes over locked ones (SKIP LOCKED), and waits only for somebody who creates the same row; what it passed over is
// sent alone.
//
// No index knows a column that swaps keep changing, so PostgreSQL writes the row's next version on the same page and leaves the
// indexes alone (a HOT update). Ready and Held therefore read, by their index, what was filed at some time, and Compact takes
// off the list what is not filed any more, at most 10,000 rows at a time and, once there are fewer, once a minute.
//
// A version is greater than the one before it by a random step. If a failover loses acknowledged versions, they are then not
// given out a second time, and a process that still holds one of them meets a conflict; with steps of one its next swap could
// overwrite another process's state.
//
// A Group with Journal has ledgers of another kind, in tables of their own: a journal of entries for each, numbered, and
// added only under the claim of its owner and after the entry that it knows of. A statement that is carried out late finds
// the next number taken, or the claim gone, and adds nothing.
//
// # Connections
//
// Each call takes at most one connection of the pool for one statement, and a walk over Ready or Held takes one for each page
// of names and keeps none while its body runs: a pool of one connection serves everything. The first use of a statement on a
// connection costs a round trip more, in which pgx prepares it. All statements of a Store work
// through PgBouncer in transaction mode (set max_prepared_statements there, 1.21 or newer, or add default_query_exec_mode=exec
// to the URL); a Group and Outbox.Listen need the server itself. A URL with several hosts needs
// target_session_attrs=read-write.
package leasepg
