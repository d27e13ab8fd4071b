// SPDX-License-Identifier: Apache-2.0

// Package bulkhead isolates the parts of one service from each other: each part runs in a compartment with slots, a queue and
// a timeout of its own, so an overloaded part cannot take the slots that the others are guaranteed.
//
// A [Set] shares a total number of slots among named compartments:
//
//   - A call holds its slot from the grant until its function has returned, even if its caller timed out before.
//   - Of its Guaranteed slots, a compartment keeps all but Lendable reserved for itself, always.
//   - Its idle Lendable slots, and all slots that no compartment is guaranteed, form a shared pool. A compartment that has
//     used up its reserved slots takes from the pool, up to its Max.
//   - While the pool is empty, calls wait in their own compartment's queue. The next free slot goes to a compartment below
//     its guarantee, the most critical first, and to a borrower only if there is none.
//   - Running functions are never interrupted to get a slot back.
//
// A compartment queues and rejects like a [limiter.Limiter], with the same queue and the same explanations. This package adds
// the sharing of slots, and per call the maximum queue wait, a timeout, a circuit breaker and a fallback.
//
// # The shared pool
//
// Let r be Guaranteed - Lendable of a compartment and n the number of slots that it holds. The pool is
//
//	Total - sum of max(n, r)
//
// and negative only after a shrink. A compartment with n < r may always take a slot, because that changes no max(n, r). So
// one subtraction guarantees both the total and the isolation.
//
// docs/guarantees/bulkhead.md has the invariants, from B1.
package bulkhead
