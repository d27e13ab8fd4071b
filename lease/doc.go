// Package lease is a work-lease ledger: it says who may work on what, one offset at a time for each domain, first come
// first served, exactly once unless told otherwise, and it proves the right to finish by a token.
//
// # The problem
//
// Records arrive on a partition or in an outbox table, each with an offset and a key. Records of one key (here: a
// domain) must be carried out one at a time and in order of arrival, records of different keys side by side. A record may
// arrive twice, a worker may die with work in its hands, and a worker that was thought dead may come back.
//
// # The model
//
// Of each domain a [Ledger] knows at most one lease, a backlog of offsets that wait, and the offsets that are done. A
// call moves one offset along
//
//	new -> waiting -> leased -> processed
//	                  leased -> failed
//
// and never back. [Ledger.TryAcquire] takes a new offset to leased if the domain is idle and nothing waits, to waiting if
// the domain is busy, and takes the head of the backlog to leased if the domain is idle. [Ledger.Succeed] and
// [Ledger.Fail] end a lease. They hand nothing to anybody: they hint at what waits, and whoever takes the hint calls again. So the
// ledger never decides when something runs, needs no timer and no goroutine, and its whole behaviour is a function from one domain's
// state and one call to the next state and an answer: [State.Step]. [Memory] runs that function under striped
// locks; an engine with a store runs the same function over what it loads and swaps (lease/durable does, with the encoding of
// [State.AppendBinary]).
//
// # Order
//
// First in, first out is about arrival, not about numbers: an offset that arrives late waits behind those that came
// before it, even when they are greater. The ledger cannot know what is still to come, so any other order would have to wait for it.
//
// # Doing it again
//
// Fail keeps the lease and counts, until MaxRetries retries have been counted; the next Fail gives the offset up. An
// offset thus gets MaxRetries+1 attempts. When the next attempt is made is for the caller to say, who finds in the lease
// the time of the first attempt and the number of retries.
//
// # The fence
//
// Every lease has a [Token], and only the token of the lease that is held ends it. [Ledger.Reclaim] rotates the
// token, and so takes a lease from a holder who is thought dead: if the holder lives, its Succeed is refused. What the
// holder did elsewhere is not undone by that. It is prevented only where the store that it writes to keeps the greatest token it
// has seen for the domain and refuses a smaller one; tokens of a domain rise for this purpose (the fencing tokens of Kleppmann,
// "How to do distributed locking", 2016, and the sequencers of Burrows, "The Chubby lock service", 2006).
//
// # Forgetting
//
// What is done must be remembered, so that it is not done again; but not for ever. [Ledger.Compact] raises the floor of the
// ledger: below it everything counts as processed, except what is leased or waiting right then. The offsets below need no memory
// of their own any more, and a domain that has nothing else is dropped. That is sound only because the floor belongs to the whole
// ledger: a domain never seen and a domain dropped are the same thing.
package lease
