// Package warden is an adaptive load shedder: it protects a service from overload by adjusting a concurrency limit, queueing
// by priority, and rejecting work with an explained reason. It composes three layers, each usable alone:
//
//	runtime -> monitor -Sample-> control -ControlDecision-> limiter -> your function
//
// Package monitor measures and knows no thresholds. Package control turns samples into decisions and sees no tasks. Package
// limiter carries out decisions and sees no measurements. Data flows one way: the limiter's counters and events are for
// people only.
//
// A [Warden] runs the three layers: every 100 ms it takes a sample, lets the controller decide, and applies the decision.
// [Do] runs a function under that limit.
//
// # Sampling
//
// A ticker's goroutine starves under exactly the overload that it must detect: while work without scheduling points occupies
// every processor, it may wait half a second for its turn. Requests therefore help: a request that finds the last sample
// overdue takes the next one, which costs it a few microseconds. [Warden.Run] is needed only for quiet times, so that a
// service recovers without requests. Without Run, or after it has returned, requests drive all sampling.
//
// # Execution times
//
// The warden reports each task's time from grant to release, and the number of running tasks, to the monitor, so that a slow
// dependency shows although no processor is busy. The limiter does not see these measurements.
//
// A zero or nil [Warden] and a zero [Permit] are safe: their methods do nothing, or return an [*InvalidError].
package warden
