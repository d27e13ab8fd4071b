// Package admission is a fail-fast concurrency limit, a gate: it decides at once whether an operation may start.
//
// Everything follows from one sentence: an operation is in flight from the instant it is admitted to the instant it
// ends, however it ends.
//
//   - A gate has Limit slots. An admission takes a slot and its end frees it, so at most Limit operations are in flight.
//   - An admitted operation frees its slot exactly once. A [Permit] is a value that may be copied, and all copies together
//     release once: a stale copy cannot free a slot that belongs to another operation by then.
//   - Nothing waits. Without a free slot the caller gets a [*RejectedError] at once, and nothing was started. So there is
//     no queue, no order, no fairness and no promise that the next try succeeds.
//   - No operation is rejected while a slot is free: "saturated" means that the limit was reached at one instant of the call.
//   - The gate runs nothing, schedules nothing and starts no goroutine. It bounds how many operations run, not how long.
//
// There are three ways through a gate. [Gate.Do] and [Call] run a function, in flight until it returns.
// [Gate.TryAcquire] returns a [Permit] for code that does not fit into one function. [Submit] starts something
// asynchronous, in flight until its [Stage] ends; [Promise] and [Async] are stages for code that has none.
//
// An operation must be cold: all its work must happen after the admission, inside the function that the gate calls. Work
// that starts earlier is neither bounded nor counted.
//
// docs/admission.md has the invariants A1 to A10, the limits of the protection, and how the gate works. Queues,
// priorities, deadlines and adaptive limits are in the warden module; this package needs none of them.
//
// A zero Gate, a nil one and a zero Permit are safe: their methods reject, do nothing, or return an [*InvalidError].
package admission
