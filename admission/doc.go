// SPDX-License-Identifier: Apache-2.0

// Package admission is a fail-fast concurrency limit, a gate: it decides at once whether an operation may start.
//
//	               Limit slots
//	arrivals ──► [ ● ● ● ○ ○ ] ──► ends, each of which frees its slot
//	              └── no free slot: *RejectedError at once, nothing was started
//
// Everything follows from one sentence: an operation is in flight from the instant it is admitted to the instant it
// ends, however it ends.
//
//   - A gate has Limit slots. An admission takes a slot and its end frees it, so at most Limit operations are in flight.
//   - The end of an operation frees its slot exactly once. A [Permit] is a value that may be copied, and all copies together
//     release once: a stale copy cannot free a slot that belongs to another operation by then.
//   - Nothing waits. Without a free slot the caller gets a [*RejectedError] at once, and nothing was started. So there is
//     no queue, no order, no fairness and no promise that the next try succeeds.
//   - An open gate rejects no operation while a slot is free: "saturated" means that the limit was reached at one instant of
//     the call.
//   - The gate schedules nothing and starts no goroutine. It bounds how many operations run, not how long: one that hangs
//     keeps its slot, and Limit of them close the gate to all others until they end.
//
// There are three ways through a gate. [Gate.Do] and [Call] run a function, in flight until it returns.
// [Gate.TryAcquire] returns a [Permit] for code that does not fit into one function, in flight until [Permit.Release].
// [Gate.Submit] starts something asynchronous, in flight until it calls back.
//
// An operation must be cold: all its work must happen after the admission, inside the function that the gate calls. Work
// that starts earlier is neither bounded nor counted.
//
// errors.Is(err, [ErrRejected]) tells a rejection from the operation's own error; errors.As finds the [*RejectedError] with the
// gate's name, its limit and the reason. Bad input gets an [*InvalidError], of the family [ErrInvalid]. A zero Gate, a nil one
// and a zero Permit are safe: their methods reject, do nothing, or return an [*InvalidError].
//
// Only [Gate.Drain] waits; Do, Call and Submit take as long as the function that they call. Package admissionhttp puts HTTP
// servers and clients behind a gate.
//
// docs/admission.md has how to size a gate and what it does not protect against, docs/guarantees/admission.md the invariants,
// from A1. Queues, priorities, deadlines and adaptive limits are in the warden module; this package needs none of them.
package admission
