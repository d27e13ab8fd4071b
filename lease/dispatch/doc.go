// SPDX-License-Identifier: Apache-2.0

// Package dispatch consumes a log in parallel and in order per key: records of one key run one at a time, in the order of
// their offsets; records of different keys run side by side. A record that fails is retried with backoff, delays its own key
// alone, and becomes a dead letter when its retries are used up. Delivery is at-least-once.
//
// It is the front door of the module lease: a program needs this package and one engine, package leasekafka, leasenats or
// leasepg, which has the log, the ledger and the membership of a consumer group.
//
// # The picture
//
//	log                            one process (a Consumer)                      your code
//
//	partition 0: ann:0 ann:1 bob:2 -> Dispatcher: a queue for each key -+         +-> Handler(ann:0)
//	                                                                    +- slots -+-> Handler(bob:2)
//	partition 1: eve:0 eve:1 eve:2 -> Dispatcher: a queue for each key -+         +-> Handler(eve:0)
//
// Its words:
//
//   - A partition is one log: a [Record] after the other, with rising offsets, read through a [Source]. A group of processes
//     shares the partitions out; each has one owner at a time, and an [Ownership] says which ones are this process's.
//   - A key is called domain. It is the unit of order: an entity whose records depend on each other, such as an account.
//   - A slot is one running call: a Consumer has MaxInFlight of them, for all of its partitions. A key takes a slot for one
//     record at a time.
//   - A [lease.Ledger] decides about a record: which process may work on it, how often it failed, whether it is done. One
//     that is not in memory outlives the process. Each lease has a fencing token (Job.Lease.Token) that rises, so that a
//     store can reject the writes of a process that has lost its lease.
//   - The floor is the low watermark of a partition: every record below it is done. It is what is committed to the Source.
//   - A dead letter is a record that was given up. It is done when Config.DeadLetter has accepted it.
//
// # A program
//
// One partition, with a log and a ledger in memory:
//
//	func main() {
//		orders := new(dispatch.Log)
//		orders.Append("ann", []byte("an order"))
//		ledger, err := lease.NewMemory(lease.Config{MaxRetries: 3})
//		if err != nil {
//			log.Fatal(err)
//		}
//		d, err := dispatch.New(dispatch.Partition{Source: orders, Ledger: ledger}, dispatch.Config{
//			Handler: func(ctx context.Context, job dispatch.Job) error {
//				return ship(ctx, job.Record.Payload) // nil: done; an error: a retry
//			},
//			DeadLetter: dispatch.Discard, // or deadletter.Keep(store)
//			Observer:   dispatch.NewLogger(nil),
//		})
//		if err != nil {
//			log.Fatal(err)
//		}
//		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
//		defer stop()
//		if err := d.Run(ctx); err != nil { // until ctx is done and running handlers have ended
//			log.Fatal(err)
//		}
//	}
//
// In production a [Consumer] takes the place of the [Dispatcher], with the same Config. The group comes from an engine's
// package, whose text shows how to open it, and brings the partitions:
//
//	consumer, err := dispatch.NewConsumer(group, dispatch.Config{Handler: handle, DeadLetter: deadletter.Keep(store)})
//	…
//	err = consumer.Run(ctx)
//
// # What blocks, and which errors end Run
//
// New, NewConsumer and Stats do not block and start nothing. Run blocks. It returns
//
//   - nil, when its context was done and the drain left nothing unfinished;
//   - [ErrDrain], when a handler outlived the drain, its outcome could not be written, or the last commit failed: the next
//     owner of the partition goes on;
//   - [ErrLost], when the partition belongs to another process (a Consumer drops the partition instead, and goes on);
//   - a [lease.InvalidError] for a nil context, a second Run, or a Dispatcher that New did not make;
//   - for a Consumer, also the error with which the membership of the group ended.
//
// No other error ends it. Each one of the ledger and the source is an [Event], but for those of [Ended], and the call is
// repeated: a commit with the next CommitEvery, a Release not at all, any other after 5 s at most. An [ErrRewound] has the
// partition stand still.
//
// # Another log
//
// Offsets that are done in one log are other records in another: in a stream that was deleted and made anew, behind a topic's
// unclean election, in a table that was restored. Such a partition is rewound: it is neither read nor committed, and goes on when
// the log is right again or was adopted. What was read is finished. What tells:
//
//   - leasenats: when the stream was created; a message that was handled, unless it was deleted; the stream's end.
//   - leasekafka: the topic's ID, from Kafka 2.8 on; records below what was read or committed; by the epoch of the partition's
//     leader, which is committed with the offset, also a log that was cut off and written on. MirrorMaker's offsets are others:
//     begin a new group and ledger there.
//   - leasepg: the ids drawn; a position below the ledger's; with a ledger elsewhere the table, which pg_restore makes anew. What
//     stays the same, as in a restore of files, shows by the first two alone.
//   - Any Source: an end below what was read, if it is seen twice ([Ended]); what [Identified] says.
//
// A position or a ledger that is of no log yet, as of an earlier release, takes the one that it is used with next for its own.
//
// A Handler, and DeadLetter, run in a goroutine of their own and may block for AttemptTimeout. Observer, Owner and the rates are
// called on the way of a record and delay it. A panic of any of these is contained.
//
// # A handler that hangs
//
// After AttemptTimeout (a minute) the handler's context ends. An error that it then returns is a failed attempt. One that
// ignores its context keeps, until it returns:
//
//   - its slot: MaxInFlight such handlers stop the process. In the order of slots it counts for no owner and no partition;
//   - its key: later records of the key wait;
//   - the floor of its partition, which rises no further. Records of other keys are handled all the same, also above the
//     floor, and the ledger remembers each of them until the floor has passed it.
//
// A drain waits DrainTimeout for it, ends its context, waits a tenth of that, and returns ErrDrain. Its lease is released, so
// the next owner of the partition runs the record under a greater token, possibly while the first call still hangs.
//
// # Order
//
// A domain has at most one record between TryAcquire and done. In a partition a free slot goes to a domain whose next step is no
// attempt, such as a dead letter, or else to the ready domain with the lowest offset: a domain that has fallen behind becomes the oldest, so none starves. With Config.Owner, a slot goes to the owner
// with the fewest slots, of several to the one that has used the least time of them, and to its domain with the lowest offset.
// A rate is asked before an attempt begins, and an attempt that it delays holds no slot, and no lease but a suspect's (below).
//
// # The floor
//
// The floor is the lowest offset that may still be in work: of the records fetched and not done, of those deferred, or else the
// next that has never been read. It rises only past done records. It is committed to the Source first and then compacted in the
// ledger, because Compact cannot be taken back: it forgets how an offset ended. A Source that knows that the partition has gone
// elsewhere rejects the commit, and then nothing is forgotten. A crash between the two leaves the ledger remembering more than
// it needs; a crash before both leaves records that are fetched again and that the ledger answers for.
//
// # Windows
//
// At most MaxBuffered records are buffered, at most MaxPerDomain of one domain; a large one counts as several, which bounds their
// bytes too. A Fetch asks for as many as there is room for, if they are as large as those before. Further records of a domain are
// deferred: the dispatcher drops them and keeps one number for the domain, the offset from which it has to be read again. It reads
// again when half of the domain's room is free, and skips what was buffered before; all partitions together cache at most
// MaxBuffered records of such reads. So a stuck key takes MaxPerDomain of MaxBuffered and no more. Where there is no room for others, a key that pauses for a second
// or longer, such as before a late retry, keeps one record. Fetching stops only when the partition's part of MaxBuffered is full,
// or MaxBuffered domains are deferred. The time of a record does not depend on the number of keys buffered.
//
// # Retries
//
// Retry n of an offset begins at the earliest
//
//	d(n) = min(MaxBackoff, Backoff·2^(n-1)),   less up to half of that at random,
//
// after its nth failure was seen, however long the handler took. Meanwhile the lease is released. A new owner of the partition
// goes on in the schedule AcquiredAt + d(1) + … + d(n) instead of beginning anew, and waits no longer than d(n).
//
// # Crashes
//
// A lease that is held when a partition is taken belonged to a former owner. It is reclaimed, which fences that owner out,
// and no attempt is counted. If it was released, its record was waiting, and goes on. If not, its record ran when its process
// died, or its Release was lost, and may have killed it (a poison record): it is a suspect. Each suspect has a trial: its
// attempt runs beside everything else but while no other suspect is within its AttemptTimeout, and is counted before it
// begins, so that a process that dies leaves one attempt more on the record that was on trial and on no other.
//
// A handler may run twice for one record, for example when it succeeded and the process died before the ledger knew. Compare
// Job.Lease.Token or the offset in the same write as the effect: docs/dispatch.md shows how.
//
// docs/guarantees/dispatch.md has the invariants, from D1.
package dispatch
