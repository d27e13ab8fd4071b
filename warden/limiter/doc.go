// SPDX-License-Identifier: Apache-2.0

// Package limiter runs tasks under a concurrency limit, with priorities, deadlines and load shedding, and explains every
// outcome.
//
// A limiter decides by no measurement but how long its tasks wait. The concurrency limit, the share of waiting work to shed and
// the expected execution time all come in a [decision.ControlDecision]. The limiter adds these rules:
//
//   - A task holds a slot from its grant until its [Permit] is released. The limiter grants at most TargetConcurrency slots.
//     A lower limit interrupts nothing: the number in flight shrinks as tasks end.
//   - Shedding is the last resort. Only a task that would have to wait, or waits, can be shed, the least important of the
//     recent mix first, up to the share that the decision names.
//   - The queue is bounded and ordered by priority. Within a priority the oldest task goes first. A standing queue (more
//     work arrives than can be served) switches to newest first, because the newest tasks can still be answered in time.
//     The older tasks stay, as long as there is room and the decision's MaxWait allows, in case the load falls.
//   - The limiter rejects work whose deadline has passed, and work that would have to wait and has less time left than work
//     of its name takes at least.
//   - Every outcome keeps its reason together with the decision in force: [Permit.Explain], [decision.Rejection],
//     [Limiter.Recent], [Observer].
//
// Standing queues are detected as in CoDel (Nichols and Jacobson, "Controlling Queue Delay", ACM Queue 2012) and served
// newest first as in adaptive LIFO (Maurer, "Fail at Scale", ACM Queue 2015).
//
// # Tasks that wait in the Go scheduler
//
// When a process has more runnable goroutines than cores, most requests do not wait in the limiter's queue: they wait for a
// core, in Go's scheduler, in order of arrival and without a bound. If the functions that run have no scheduling points, a
// limiter in front of them sees one task at a time, each of them late, and has nothing to choose from. Therefore a task that
// was granted a slot lets new arrivals come first: it calls [runtime.Gosched] until no new task arrives, at most Yields
// times, and then checks its deadline and context once more. The tasks that waited for a core are then in the queue, which
// has an order, a bound and deadlines.
//
// # Implementation
//
// One mutex guards the running tasks, the queue, the decision in force and the counters; no foreign code runs under it. The
// queue has a list for each priority, so entering, leaving and granting take constant time whatever the queue's length, unless
// StarvationEvery is set. Package bulkhead's compartments use the same queue.
//
// docs/reasons.md explains every reason, docs/guarantees/limiter.md has the invariants, from Q1.
package limiter
