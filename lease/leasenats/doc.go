// SPDX-License-Identifier: Apache-2.0

// Package leasenats keeps work-lease ledgers in NATS JetStream, as keys of a key-value bucket, and consumes streams: a
// [Group] is a consumer group for a dispatch.Consumer, and [Letters] are its dead letters.
//
//	store, err := leasenats.OpenStore(ctx, leasenats.StoreConfig{Conn: nc, Bucket: "orders"})
//	ledger, err := durable.New(durable.Config{Store: store, MaxRetries: 3})
//
// A record's version is its revision, that is, its sequence in the stream under the bucket; a swap is a publish that the
// server accepts only if the key's last sequence is the expected one. The record's index is a header of the same
// message, so the two cannot disagree. Keys are never deleted. Reads go to the stream's leader, never to a follower,
// whatever the bucket allows.
//
// An answered swap is as durable as an acknowledged message: with one replica it survives a killed process but not a
// power failure, unless the server runs with sync_interval: always; with three replicas it survives the loss of one
// server. docs/lease-engines.md has the table, and how to recover.
package leasenats
