// SPDX-License-Identifier: Apache-2.0

// Package lease is a work-lease ledger with fencing tokens: at most one lease per key (exclusive processing), the offsets of
// a key in order of arrival, and a memory of what is done.
//
// To process records in order per key, use package dispatch: its Consumer reads a source, calls a handler, retries and
// commits, and calls the ledger for you. Call a [Ledger] yourself only in a scheduler of your own. There is no visibility
// timeout: no lease expires, and you decide when to retry and when a holder is dead.
//
//	ledger, err := lease.NewMemory(lease.Config{MaxRetries: 3}) // durable.New: in PostgreSQL, JetStream or a store of yours
//	…
//	a, err := ledger.TryAcquire(ctx, "order-17", offset)
//	if err == nil && a.Status == lease.Acquired {
//		work(a.Lease) // its Token goes with every write
//		_, err = ledger.Succeed(ctx, "order-17", a.Lease.Token)
//	}
//
// # States
//
// A ledger knows for each key (here: a domain) at most one lease, a backlog of offsets that wait, and the offsets that are
// done. A call moves one offset
//
//	new -> waiting -> leased -> processed
//	                  leased -> failed
//
// and never back. [Ledger.TryAcquire] leases a new offset if the domain is idle and nothing waits, queues it if the domain is
// busy, and leases the head of the backlog if the domain is idle. [Ledger.Succeed] and [Ledger.Fail] end a lease. They hand
// nothing off: they hint at the next offset, and the caller acquires it. So the ledger needs no timer and no goroutine. All
// engines share one state machine, and so give the same answers.
//
// The calls and their answers:
//
//	TryAcquire(domain, offset)      ACQUIRED, ENQUEUED, ALREADY_ACQUIRED, ALREADY_PROCESSED, ALREADY_FAILED
//	Offer(domain, offset)           ENQUEUED or one of ALREADY_…; it never grants a lease
//	AcquireNext(domain)             ACQUIRED, NOTHING_TO_DO, BUSY
//	Succeed(domain, token)          NO_BACKLOG, NEXT_HINT
//	Fail(domain, token)             RETRY_SCHEDULED, GIVE_UP_NO_BACKLOG, GIVE_UP_NEXT_HINT
//	GiveUp(domain, token)           GIVE_UP_NO_BACKLOG, GIVE_UP_NEXT_HINT
//	Release(domain, token)          the lease stays, without an owner
//	Reclaim(domain, held)           the lease under a new token
//	Compact(floor)                  offsets below floor are done
//	Ready(), Held(), Inspect(domain)  idle domains with a backlog; leases; one domain
//
// An Observer gets an event for each decision, with operation and result in snake_case (try_acquire, already_acquired), which
// fit the labels of a metric.
//
// # Order
//
// The backlog is first in, first out by arrival, not by number. The ledger cannot know which offsets are still to come, so
// any other order would have to wait for them.
//
// # Retries
//
// Fail keeps the lease and counts a retry until MaxRetries are counted; the next Fail gives the offset up. An offset thus gets
// MaxRetries+1 attempts. The lease tells the caller when the first attempt began and how many retries were counted.
//
// # Fencing
//
// Every lease has a [Token], and only the current one ends the lease. [Ledger.Reclaim] replaces the token, and so takes the
// lease from a holder that is thought dead: if it lives, its Succeed is rejected. Its writes elsewhere are prevented only by
// a store that keeps the greatest token seen for the domain and rejects a smaller one; tokens of a domain rise for this
// purpose (the fencing tokens of Kleppmann, "How to do distributed locking", 2016, and the sequencers of Burrows, "The Chubby
// lock service", 2006).
//
// # The floor
//
// [Ledger.Compact] raises the low watermark of the ledger, its floor: every offset below it counts as processed, except those
// leased or waiting at that moment. These offsets need no memory any more, and a domain with nothing else is dropped. That is
// sound only because the floor belongs to the whole ledger: a domain never seen and a domain dropped are the same thing.
//
// # Errors and blocking
//
// Each rejection is a type with the fields that explain it, for errors.As, and errors.Is finds its family, such as
// [ErrTokenMismatch]. After an error the ledger is unchanged, but for durable.ErrAmbiguous. No call waits for another caller's
// work, but for the transaction of a leasepg.SucceedTx: a call in memory blocks for a short lock, one of package durable for
// its store.
//
// docs/guarantees/lease.md has the invariants, from L1.
package lease
