// SPDX-License-Identifier: Apache-2.0

// Package bulkhead isolates the parts of one service from each other: each part runs in a compartment with slots, a queue and
// a timeout of its own, so an overloaded part cannot take the slots that the others are guaranteed.
//
// A [Set] shares a total number of slots among named compartments:
//
//   - A call holds its slot from the grant until its function has returned, even if its caller timed out before.
//   - Of its Guaranteed slots, a compartment keeps all but Lendable reserved for itself. Only a decision below the Total
//     lowers both.
//   - Its idle Lendable slots, and all slots that no compartment is guaranteed, form a shared pool. A compartment that has
//     used up its reserved slots takes from the pool, up to its Max.
//   - While the pool is empty, calls wait in their own compartment's queue. The next free slot goes to a compartment below
//     its guarantee, the most critical first, and to a borrower only if there is none.
//   - Running functions are never interrupted to get a slot back.
//
// A compartment queues and rejects like a limiter.Limiter, with the same queue and the same explanations. This package adds
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
// # Errors and blocking
//
// A call waits in the queue of its compartment, for MaxWait at most, or for Timeout where MaxWait is 0. Where its function is
// not called, the error is
//
//   - a *decision.Rejection for want of a slot, with the limiter's reason; with a [*TimeoutError] as its cause after MaxWait or
//     Timeout (timeout_queued); with the breaker's own error as its cause if the breaker is open (breaker_open), for a call
//     without a slot the last such error, if there was one;
//   - a *decision.ReentryError if the caller is in the compartment already;
//   - [ErrUnknownCompartment] for a compartment that the set does not have.
//
// If its function was called, and may still run, the error is a [*TimeoutError] after Timeout (timeout_running), or the
// context's if the context ended while it ran with a Timeout (canceled); else it is the function's own. errors.Is finds
// [ErrTimeout] in both timeouts, and decision.ErrRejected in each rejection.
//
// docs/guarantees/bulkhead.md has the invariants, from B1.
package bulkhead
