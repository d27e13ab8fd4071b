// SPDX-License-Identifier: Apache-2.0

// Package leasenats keeps work-lease ledgers in NATS JetStream, as keys of a key-value bucket, and consumes streams: a
// [Group] is a consumer group for a dispatch.Consumer, and [OpenLetters] keeps its dead letters.
//
//	store, err := leasenats.OpenStore(ctx, leasenats.StoreConfig{Conn: nc, Bucket: "orders"})
//	ledger, err := durable.New(durable.Config{Store: store, MaxRetries: 3})
//
// A record's version is its revision, that is, its sequence in the stream under the bucket; a swap is a publish that the
// server accepts only if the key's last sequence is the expected one. The record's index is a header of the same
// message, so the two cannot disagree. Keys are never deleted. Records are read from the stream's leader, never from a
// follower, whatever the bucket allows.
//
// # Durability
//
// An answered swap survives what an acknowledged message survives:
//
//	servers                             killed process  power failure                         loss of a machine
//	1 replica, sync_interval 2 min      nothing lost    up to two minutes lost, tokens too    all lost
//	1 replica, sync_interval: always    nothing lost    nothing lost                          all lost
//	3 replicas, sync_interval 2 min     nothing lost    two minutes, if all fail at once      nothing lost
//	3 replicas, sync_interval: always   nothing lost    nothing lost                          nothing lost
//
// Two minutes are the server's default, and one replica that of [StoreConfig]. Where answered writes were lost, work may be
// leased again under a token that is not greater: stop all workers before the first one restarts.
//
// A bucket that could lose or age records is rejected (a lease.InvalidError). A record must fit max_payload and the bucket's
// MaxMsgSize.
//
// # Groups
//
// The members of a [Group] keep one record in the bucket: "nats kv get --raw orders group-group" shows who holds what. When a
// member dies or freezes, others take its partitions after its Session. A member that cannot reach the server stops its work a
// quarter of a session earlier, says so to OnError, and begins again when the server is back. Its records come over a second
// connection, a bounded number of bytes at a time: all partitions together are sent about 4 MiB that are not read yet, and the
// server, which cuts a connection that has 64 MiB to read, has no reason to. Stream, subject and number of
// partitions are permanent: for another number, begin a new stream and Group, and drain the old ones.
//
// # How to recover
//
//   - A server restarts or a leader is lost: do nothing.
//   - A worker died: dispatch recovers by itself. Without it, list Held, Reclaim each lease, and Fail it unless it is Released.
//   - A key was deleted or overwritten: restore the value from a backup ("nats stream restore" into a copy) and publish it with
//     its Lease header. Without a backup: stop all workers, raise the floor above all that was done in the domain, and purge
//     the key's subject and <Name>/listed. The domain's tokens may begin lower.
//   - The stream was deleted and made anew, put back, or replaced by a promoted mirror: the partition is rewound, as new messages
//     below its position would be passed over. "leasectl adopt" goes on in a mirror. For any other stream give the group a new
//     Bucket: what the stream has is done again.
//   - The bucket was restored, or acknowledged messages were lost: stop all workers, purge <Name>/listed, raise the floor to
//     what was committed upstream, and restart every process.
package leasenats
