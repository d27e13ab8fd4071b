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
// each partition, which stops the fetching when it is full, and from which records are read again. Offsets are committed
// with the group's generation, and only for partitions that are held: the generation alone would let a member commit for one that
// it gave away. docs/kafka.md has the options, and the difference between ledgers in memory and durable ones.
package leasekafka
