// SPDX-License-Identifier: Apache-2.0

// Package leasekafka runs package dispatch on the partitions of a Kafka consumer group: handlers in parallel, in order per key,
// with retries, dead letters and safe offset commits through rebalances.
//
//	group, err := leasekafka.OpenGroup(ctx, leasekafka.GroupConfig{
//		Brokers: brokers, Group: "shipping", Topics: []string{"orders"}, OpenLedger: open,
//	})
//	…
//	consumer, err := dispatch.NewConsumer(group, dispatch.Config{Handler: place, DeadLetter: bury, MaxInFlight: 64})
//	…
//	err = consumer.Run(ctx)
//
// One client joins the group, with cooperative rebalancing, and fetches for all of its partitions. Records wait in a window of
// each partition, which stops the fetching while half of it waits, and from which records are read again. Offsets are committed
// with the group's generation, and only for partitions that are held: the generation alone would let a member commit for one that
// it gave away. docs/kafka.md compares ledgers in memory with durable ones.
//
// # Ledgers in memory
//
// The offset commit's metadata (at most 4,096 characters) carries done offsets, failures and running records to the next owner.
// Two of dispatch's invariants are weaker: after a crash, records finished since the last commit run again, after a drain
// that could commit none do (D4); a record that kills its process within two CommitEvery of its start may go unnoticed and
// uncounted each time (D6).
//
// Overlapping members are not fenced: each has its own ledger until it notices that it lost the partition, and only a store
// that compares tokens rejects the older one. When the metadata is three quarters full, the partition reads nothing new until
// done offsets close up: some 400 failing records with done ones between them do that, or 1,100 that wait. Metadata in a
// newer version goes to OnError, and the partition is not worked on. It says which topic it is of. Roll a newer program out to all members; to go back,
// stop them and reset the offsets (--reset-offsets --to-current).
//
// # Rebalances
//
//   - A partition that must be given back is drained and committed first. Those that stay keep working (cooperative-sticky). A
//     group with a member that does not offer that rejects this one: Hold returns kerr.InconsistentGroupProtocol.
//   - A partition is lost when the session or the rebalance times out: its commits are rejected, work ends with
//     dispatch.ErrLost, and the member joins again.
//   - Without a broker, work continues until the heartbeat fails, within five sixths of a session; then every partition is
//     lost.
//
// A rebalance waits for drains: up to 1.1 DrainTimeouts, 11 s by default, and the last commits, which have one and a half more.
// A member that exceeds RebalanceTimeout loses all its partitions, and its work in progress is repeated. Once a session a
// member compares what the group gave to it with what it works on, begins what is missing again, and says so to OnError. A
// partition whose committed offset a broker does not tell is not passed over.
//
// # Memory
//
// A partition pauses when half its Window waits, and resumes at a quarter. Besides, the client buffers at most one fetch for
// each partition (kgo.FetchMaxPartitionBytes, 1 MiB) and each broker (kgo.FetchMaxBytes, 4 MiB, or 105 KB for each second of a
// Session below 40 s: a link of 400 KB/s brings that in time).
package leasekafka
