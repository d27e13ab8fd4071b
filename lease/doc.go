// Package lease is a work-lease ledger with fencing tokens: at most one lease per key, offsets of a key in order of arrival, and a memory of
// what is done. There is no visibility timeout: no lease expires, and the caller decides when to retry and when a holder is dead.
//
// Package dispatch is such a caller, and most programs use it instead of a ledger. docs/lease.md has the invariants L1 to L12.
//
// # States
//
// A ledger knows for each key (here: a domain) at most one lease, a backlog of offsets that wait, and the offsets that are done. A call moves one offset
//
//	new -> waiting -> leased -> processed
//	                  leased -> failed
//
// and never back. [Ledger.TryAcquire] leases a new offset if the domain is idle and nothing waits, queues it if the domain is busy, and
// leases the head of the backlog if the domain is idle. [Ledger.Succeed] and [Ledger.Fail] end a lease. They hand nothing off: they
// hint at the next offset, and the caller acquires it. So the ledger needs no timer and no goroutine, and all of its rules are one function
// from a domain's state and a call to the next state and an answer: [State.Step]. [Memory] runs that function under striped locks; package
// durable runs it over any store that can compare-and-swap a record (encoded by [State.AppendBinary]).
//
// # Order
//
// The backlog is first in, first out by arrival, not by number. The ledger cannot know which offsets are still to come, so any other
// order would have to wait for them.
//
// # Retries
//
// Fail keeps the lease and counts a retry until MaxRetries are counted; the next Fail gives the offset up. An offset thus gets MaxRetries+1
// attempts. The lease tells the caller when the first attempt began and how many retries were counted.
//
// # Fencing
//
// Every lease has a [Token], and only the current one ends the lease. [Ledger.Reclaim] replaces the token, and so takes the lease from a holder
// that is thought dead: if it lives, its Succeed is rejected. Its writes elsewhere are prevented only by a store that keeps the greatest token
// seen for the domain and rejects a smaller one; tokens of a domain rise for this purpose (the fencing tokens of Kleppmann, "How to do
// distributed locking", 2016, and the sequencers of Burrows, "The Chubby lock service", 2006).
//
// # The floor
//
// [Ledger.Compact] raises the low watermark of the ledger, its floor: every offset below it counts as processed, except those leased or waiting at
// that moment. These offsets need no memory any more, and a domain with nothing else is dropped. That is sound only because the floor belongs
// to the whole ledger: a domain never seen and a domain dropped are the same thing.
//
// A zero or nil [Memory] is safe: its methods return an [*InvalidError].
package lease
