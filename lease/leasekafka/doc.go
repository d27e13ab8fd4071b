// Package leasekafka works the partitions of Kafka topics off with package dispatch: a [Group] is a member of a consumer group, and as a
// dispatch.Ownership it brings a dispatcher for each partition that the group gives it.
//
//	group, err := leasekafka.New(leasekafka.Config{Brokers: brokers, Group: "orders", Topics: []string{"orders"}})
//	…
//	err = group.Hold(ctx, func(ctx context.Context, p dispatch.Partition) {
//		d, err := dispatch.New(dispatch.Config{Name: p.Name, Source: p.Source, Ledger: p.Ledger, Handler: handle, DeadLetter: bury})
//		…
//		err = d.Run(ctx)
//	})
//
// One client joins the group, with cooperative rebalancing, and fetches for all of its partitions. What it fetches waits in a window of each
// partition, which stops the fetching when it is full, and from which records are read again. Offsets are committed
// with the group's generation, and only for partitions that are held: the generation alone would let a member commit for one that it gave
// away. docs/kafka.md has the rest.
package leasekafka
