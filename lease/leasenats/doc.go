// Package leasenats is a durable.Store on NATS JetStream: a key-value bucket in which each domain of a ledger has one key.
//
//	store, err := leasenats.Open(ctx, leasenats.Config{Conn: nc, Bucket: "orders"})
//	ledger, err := durable.New(durable.Config{Store: store, MaxRetries: 3})
//
// A record's version is its revision, that is, its sequence in the stream under the bucket; a swap is a publish that the server accepts
// only if the key's last sequence is the one expected. Keys are never deleted. Reads go to the stream's leader, never to a
// follower, whatever the bucket allows.
//
// A Source is a stream, or some of its subjects, as a partition for a dispatch.Dispatcher. A Group shares the partitions of a stream out among
// processes, for a dispatch.Consumer.
//
// What an answered swap survives is the server's affair: with one replica a killed process but not a power failure, unless it runs with
// sync_interval: always; with three replicas the loss of one server. docs/lease-engines.md has the table.
package leasenats
