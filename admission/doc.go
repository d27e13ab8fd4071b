// Package admission is a fail-fast gate: it decides whether an operation may start, now or never.
//
// All of it follows from one sentence: in flight means admitted until terminal. An operation is in flight from the
// instant it is admitted to the instant it ends, whatever way it ends. From that follows:
//
//   - A gate has Limit places. Admitting takes one, ending gives it back, so at most Limit are in flight.
//   - Whoever was admitted gives back exactly once. A [Permit] is a value that may be copied, and all copies together
//     release once: a stale copy cannot release the place of somebody else.
//   - Nothing waits. If there is no place, the caller learns it at once, by a [*RejectedError], and nothing was started. So there
//     is no queue, no order, no fairness and no promise that the next try succeeds.
//   - Nobody is refused while there is a place: "saturated" means that the limit was reached at one instant of the call.
//   - The gate runs nothing, schedules nothing and starts no goroutine. It bounds who may start, not how long it takes.
//
// There are three ways through a gate. [Gate.Do] and [Call] run a function, in flight until it returns. [Gate.TryAcquire]
// hands out a [Permit] for code that cannot be put into one function. [Submit] starts something asynchronous, in flight
// until its [Stage] ends; [Promise] and [Async] are stages for code that has none.
//
// An operation must be cold: all it does must happen after it was admitted, inside the function that it hands to the
// gate. Work that starts before is not protected, and not counted.
//
// The invariants A1 to A10, what a gate cannot protect against, and how it works are explained in docs/admission.md.
// Queues, priorities, deadlines and adaptive limits are the business of the warden module; this one is complete without it.
package admission
