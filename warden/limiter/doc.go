// Package limiter carries out what control decided: it lets tasks run, makes them wait, or refuses them, and can say of
// each one why.
//
// It judges nothing. How many may run at once, which share of the others is to be shed, and how long a task is expected to
// take, all come in a [decision.ControlDecision]. What is left to the limiter follows from a few sentences:
//
//   - A task holds a place from the instant it is granted one until its [Permit] is released. At most TargetConcurrency
//     tasks are granted places. A lower target takes nothing away: the number in flight shrinks as tasks end.
//   - Shedding is the last resort. Only a task that would have to wait can be shed, and then the least important of the
//     recent mix are, as many as the decision says.
//   - The queue is bounded, and in it the more important goes first. Within a priority the oldest goes first. A queue that stands, because
//     more comes than can be served, is served from its newest end: those can still be answered quickly. The others are kept, for when
//     the load falls, as long as there is room.
//   - Work that cannot end before its deadline is not started.
//   - Every outcome has a reason and the decision that ruled, kept together: [Permit.Explain], [Rejection.Explain],
//     [Limiter.Recent], [Observer].
//
// # The queue that nobody sees
//
// When a process has more runnable goroutines than cores, most of what waits for a limiter does not wait in it: it waits for
// a core, in Go's scheduler, in order of arrival and without a bound. If the functions that run have no scheduling points,
// a limiter in front of them sees one task at a time, each of them late, and has nothing to choose from. So a task that was
// granted its place lets the others come before it starts: it calls [runtime.Gosched] until that brings no new arrival, at
// most Yields times, and then looks at its deadline and context once more. What waited for a core is then in
// the queue, where it has an order, a bound and an end.
//
// # How it is made
//
// One mutex guards who runs, who waits, what rules, and the counters; no foreign code runs under it. The queue has a list for
// each priority: to enter it, to leave it and to be next cost the same whatever its length. Compartments (package bulkhead)
// wait in the same kind of queue.
//
// The invariants Q1 to Q18 and every reason are explained in docs/limiter.md.
package limiter
