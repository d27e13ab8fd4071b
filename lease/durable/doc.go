// SPDX-License-Identifier: Apache-2.0

// Package durable is the ledger of package lease in a store that outlives the process: PostgreSQL, JetStream, or any [Store]
// that can compare-and-swap a record. Any number of processes may share it. docs/lease-engines.md compares the
// engines, whose packages say how durable an answered call is, and how to recover.
//
//	store, err := leasepg.OpenStore(ctx, leasepg.StoreConfig{Pool: pool, Name: "orders/3"})
//	…
//	ledger, err := durable.New(durable.Config{Store: store, MaxRetries: lease.DefaultRetries})
//
// # Errors
//
//   - [ErrStore]: the ledger is unchanged. Repeat the call.
//   - lease.ErrBacklogFull: unchanged; too many wait, or the record would exceed half of the store's limit. Work off the
//     backlog, or raise the floor.
//   - [ErrAmbiguous]: changed once, or not at all. Repeat the call: the answer shows what was applied.
//   - [ErrCorrupt], [ErrNewer]: unchanged. Repair the record; upgrade the program.
//   - [ErrExhausted]: unchanged. Begin a new ledger.
//
// Never delete or restore a single record. A ledger that finds signs of it stops in that domain, in Ready and in Held, and
// overwrites nothing; ErrCorrupt names the domain. An ErrStore with Load of "" and "deleted" in its text means that the
// ledger's own record is missing or too old. Stop all workers and restore it from a backup, if no ledger was opened since.
// Otherwise begin a new ledger under another name, and Compact it to what was committed upstream before a worker starts.
//
// # Ledgers per window
//
// Where a Group shares out the partitions, only the owner of one writes to its ledger, and with Journal in the GroupConfig of
// leasepg or leasenats it writes much less. The ledger is in the owner's memory, beside a journal in the store: up to which
// offset records have begun, before they are leased; within 50 ms, what is done; everything else before the call returns. The
// next owner claims the ledger, which rejects later writes of the former one. What had begun and is not done may have been
// running: it counts no attempt, and each lease of it is written first, so that a second crash shows what was running.
//
// A ledger stays as it was begun, and the other setting is rejected by name (a lease.InvalidError). On PostgreSQL, let the
// outbox run empty, stop all members, and delete its ledgers' rows: DELETE FROM stopbank.lease_domains WHERE
// starts_with(ledger, 'orders/'). There is no way back but another outbox. On JetStream, use another Bucket and a new stream.
//
// # One record for a domain
//
// A [Store] keeps bytes under a name. Each domain has one record, and every call that changes it is one compare-and-swap
// (optimistic concurrency): the state is read, or known from the last call, stepped by the rules of package lease, and
// swapped for the version that it came from. After a conflict the call is made again on the new version. So the domain's
// history is one line, however many write it. Between calls nothing is held: no lease of time, no lock, no leadership.
//
// The state that a ledger left in a domain stays in its memory, so the next change costs one Swap; if another writer came in
// between, that Swap fails and harms nothing. An answer that changes nothing (ALREADY_..., BUSY, an error) has no Swap to be
// wrong by, so it is confirmed by a Load.
//
// # Lost replies
//
// A Swap that was sent and not answered was carried out, or not, or will be. The record holds the id of the last write of
// each of the sixteen writers that wrote last. The ledger sends the same Swap again: it is carried out now; or it conflicts,
// and then the record, read again, either shows the id, or shows that no id was dropped since, in which case the Swap was not
// and, its version being gone, never will be carried out. Otherwise, or when ctx ends or eight tries have failed, the call ends
// in [ErrAmbiguous].
//
// # Tokens
//
// The ledger's own record issues a number to each writer, which is what [New] returns, at its first call that may write. A
// writer counts by a Lamport clock. A token is the clock (41 bits) above the number (22
// bits): unique because no two writers have one number, rising in a domain because the record keeps the domain's greatest
// token and the clock passes it. Records show the numbers of their last writers, so a number that the ledger's own record
// never issued shows that this record was deleted or restored from a backup.
//
// # The floor
//
// The floor of Compact lies in the ledger's own record, and is written there before any state is trimmed at it. A state says
// which floor it was trimmed at, so a writer that reads it knows that floor too; a domain that is not in the store is judged
// only after the floor was read. Compact visits no domain: each is trimmed when it is written next, and no record is ever
// deleted, since it keeps the domain's greatest token.
//
// # The log
//
// A ledger is of one log. It keeps the identity that a dispatch.Identified source gives, from its first use on, in its own record,
// and package dispatch does not use it with another log (dispatch.ErrRewound). "leasectl adopt" has it forget the log.
//
// # Record format 1
//
// Numbers are varints of encoding/binary, signed ones zigzag encoded. A greater format is rejected as newer. A domain's record:
//
//	format            1 byte      1
//	swaps             varint      how many swaps made the record
//	greatest token    varint      of all that the domain had
//	floor             signed      at which it was trimmed
//	write ids         1 byte, then two varints each: 0 to 16 of a writer and its count, oldest first
//	state             State.Append of lease/internal/step
//	checksum          4 bytes     CRC-32C of the name and all of the above, little-endian
//
// The ledger's own record, under the name "":
//
//	format            1 byte      1
//	writers           varint      numbers given out
//	floor             signed      the ledger's
//	checksum          4 bytes     as above
//
// If it is of a log, its format is 2, and the log's identity follows the floor.
//
// A damaged bit is noticed, and so is a record under another name.
package durable
