// SPDX-License-Identifier: Apache-2.0

// Package deadletter is a dead-letter queue for records that a dispatcher gave up: list and read them, then replay, park or
// discard them one by one, or replay all in order.
//
//	cfg.DeadLetter = deadletter.Keep(letters) // of the dispatch.Config
//	…
//	report, err := deadletter.ReplayAll(ctx, letters, deadletter.Filter{Partition: "orders/3"})
//
// letters is a [Store]: that of leasepg, leasenats or leasekafka. A letter's ID is the partition and offset of its record. A
// replay appends the record to its source again, behind everything that is there, with the same partition, key, payload and
// headers (leasenats leaves out those that begin with Nats-) and the header Stopbank-Replay-Of with the letter's ID. Then the
// letter is gone. A Store remembers letters that are gone, so that a dispatcher that reports one again after a crash does not
// bring it back (L15).
//
// docs/dead-letters.md has the commands of leasectl.
package deadletter
