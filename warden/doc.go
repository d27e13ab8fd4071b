// SPDX-License-Identifier: Apache-2.0

// Package warden is an adaptive load shedder: it protects a service from overload by adjusting a concurrency limit, queueing
// by priority, and rejecting work with an explained reason. It composes three layers, each usable alone:
//
//	runtime -> monitor -Sample-> control -ControlDecision-> limiter -> your function
//
// Package monitor measures and does not judge. Package control turns samples into decisions and sees no tasks. Package limiter
// carries out decisions and sees no measurements. Data flows one way: the limiter's counters and events are for people only.
//
// A [Warden] runs the three layers: in each interval, by default 100 ms, it takes a sample, lets the controller decide, and
// applies the decision. [Do] runs a function under that limit:
//
//	w, err := warden.New(warden.Config{})
//	if err != nil {
//		return err
//	}
//	go w.Run(ctx)
//	…
//	result, err := warden.Do(ctx, w, warden.Task{Name: "search", Priority: decision.High}, search)
//	if errors.Is(err, warden.ErrRejected) {
//		// search was not called: tell the client to come back later
//	}
//
// For HTTP servers and clients there is package wardenhttp, for gRPC wardengrpc; package service puts a whole server together.
//
// # Errors and blocking
//
// Do and [Warden.Acquire] wait in the queue, by priority, until there is a slot. A task that cannot have one in time, for which
// the queue has no room, that is shed, or whose context ends, gets a [*Rejection]: errors.Is matches it with [ErrRejected], and
// errors.As finds its reason, the decision in force and RetryAfter. [ErrReentry] means that the work already holds a slot of
// this warden, so that a second one could be waited for forever. Errors of the function are returned as they are.
//
// A function that hangs holds its slot until it returns, because running work is never interrupted: give it a context with a
// deadline, and heed it. The limit makes up, within Control.Max, for executions that run much longer than others of their name: in
// full for 512 of them, and less beyond. A task that only waits for something to tell its client needs no slot: [Permit.Park].
//
// # Sampling
//
// A ticker's goroutine starves under exactly the overload that it must detect: while work without scheduling points occupies
// every processor, it waits for its turn like all others. Requests therefore help: a request that finds the last sample overdue
// takes the next one, which costs it a few microseconds, and up to 20 ms if a pool of Config.Pools does not answer.
// [Warden.Run] is needed only for quiet times, so that a service recovers without requests. Without Run, or after it has
// returned, requests drive all sampling.
//
// # Execution times
//
// The warden reports each task's time from start to release, and the number of running tasks, to the monitor, so that a slow
// dependency shows although no processor is busy. The limiter does not see these measurements.
//
// A zero or nil [Warden] and a zero [Permit] are safe: their methods do nothing, return zero values, or an [*InvalidError].
package warden
