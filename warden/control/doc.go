// SPDX-License-Identifier: Apache-2.0

// Package control is an adaptive concurrency controller: from measurements of the runtime and of execution times it decides
// how many tasks may run at once, and gives its reasons. It never touches a task, and gets no feedback from the limiter.
//
// A [Controller] is a small state and a pure step. [Controller.Step] turns one sample into one decision; it reads no clock
// and draws no random number, so the same samples always give the same decisions: recorded ones can be decided again, by any
// configuration.
//
//	c, err := control.New(control.Config{})
//	if err != nil {
//		return err
//	}
//	for range time.Tick(100 * time.Millisecond) {
//		limiter.Apply(c.Step(sampler.Sample()))
//	}
//
// Step blocks only for another Step and returns no error: what a sample lacks counts as not measured. Executions that hang are
// counted by the monitor as long, and come on top of the limit, within Max; beyond 512 the limit for the others falls as they
// become more.
//
// Two resources bound useful concurrency, and each has its half of the algorithm:
//
//   - Processors. Work that waits for a processor shows in scheduling delays, in the number of runnable goroutines and in
//     throttling. The worst of these signals, scaled to 0 to 1, is the pressure; a busy processor without a queue adds to it
//     only enough to stop growth. Where other processes take processors, delays count in the processor time that this one
//     gets. The concurrency limit grows below a band of pressure, holds inside it and shrinks above it.
//   - Everything else that work waits for, such as a slow dependency. Execution times show it: they grow, while more
//     concurrency brings no more throughput. Because slower work looks the same, the controller probes: it cuts the limit,
//     and measures whether the cut removed waiting or throughput. If it removed throughput, the cut is undone.
//
// The smaller of the two limits applies, and the smallest where pools or memory bound the work too. Little's law, L = rate x
// time, connects what runs, what ends and how long it takes, throughout.
//
// # Processors
//
// Each signal becomes a level from 0 to 1 by a ramp, and the highest counts. The pressure p follows it, with a time constant of
// 0.1 s up and 0.4 s down. With the default [Config].Lag:
//
//	signal                   level 0   level 0.5   level 1
//	Lag.P90                  4 ms      10 ms       16 ms
//	Lag.P50                  2 ms      5 ms        8 ms
//	Runnable per processor   1.6       8.5         12.8, capped at 0.75
//	Throttled                0.1       0.4         0.7
//	Utilization              0.9       capped at 0.45
//
// Lag counts less, and Runnable more, if few delays were observed. While Utilization is below 0.85, the lag thresholds are
// twice as high. Reasons and effects, with dt in seconds:
//
//	queueing   p > 0.5    limit <- limit · exp(-7 · (p - 0.5) / 0.5 · dt)         not below one task per processor
//	busy       otherwise  the limit stays
//	calm       p < 0.35   limit <- the larger of limit · exp(s · dt) and limit + 5 · s · dt,
//	                      s = 2 · (0.35 - p) / 0.35, at most twice the limit
//
//	           p > 0.8    shed  <- shed + 0.5 · (p - 0.8) / 0.2 · dt
//	           p < 0.65   shed  <- shed - 0.2 · (0.65 - p) / 0.65 · dt
//
// # Stolen processors
//
// Delays and runnable goroutines are multiplied by the share of the processor time before they become levels, and utilization
// is divided by it. Once utilization / share nears 1 the queue is ours: from 0.85 to 0.97, delays come to count by the square
// root of the share, because the neighbour's turn is part of each, and goroutines in full. While the share, smoothed, is below
// 0.7 and until it is 0.8, the process is starved:
//
//   - The limit falls no further than to n + √n and one per processor, where n is how many tasks wait for something else than a
//     processor: throughput x usual execution time, less the processors in use, and no more than what runs. Usual is the
//     baseline of before; for a process that was starved from its first sample, the shortest tenth of its execution times. A
//     limit that had fallen before the share was known comes back to there, doubling at most in each step.
//   - Executions take longer beside a neighbour. When the share changes by a fifth below 0.7, a cut that is being verified is
//     undone, and the baseline is learned anew from executions that began since; until then nothing is cut. While all of the
//     share is used, processors are the bottleneck. Compartments do not vote on what they share while the process is starved.
//
// # Pools
//
// A pool tells how much of it is in use and how much there is, and, if it can, how many wait. Each is the number of connections
// needed per running task, averaged over 2 s or four execution times. Needed is what is in use and what waits. Where the pool
// does not say how many wait, that is seen only while the pool has room; while it has none it is at least the pool, or what the
// tasks would need by the last estimate; and if it has had none for nine tenths of that time, one connection a task.
//
// Max / each tasks make full use of the pool. Room beyond them is the largest of 1, 5 % of them and √(Max · (1 - each)) / each,
// by which the number of tasks at the pool varies by chance. Where the pool is full, more run than that and some of them wait,
// the limit falls to it at once, without a trial. Otherwise it grows up to there. While a pool is full this replaces execution
// times; while none is, the smaller of both limits applies, and of several pools the smallest. Connections that others use are
// part of each, and so lower this limiter's share in proportion. A full pool whose connections may all be held by what runs for
// long counts for nothing: no limit would help those who wait for it.
//
// # Execution times
//
//   - Baseline: the last 256 execution times from windows without a sign of waiting. Their median is Expected.
//   - Growth: while 0.8 of the limit or more is in use and nothing waits, each execution that ends lets one more run, fewer
//     at first after a cut.
//   - Cut: when 8 executions or more are longer than the baseline by 3.5 standard deviations of the Mann-Whitney test, growth
//     stops. Added time x throughput is how many of them wait; the limit is cut by that number, to 0.2 to 0.75 of those that
//     run.
//   - Verification: if times are shorter, only waiting was removed, and the cut stays. If less is done instead, the limit
//     returns and the baseline is learned anew.
//   - A limit in use for 12 execution times is cut for a trial anyway: for 3 after a trial that found waiting, for up to 64
//     after those that found none.
//
// Where most of 32 or more executions, and most of their time, are abandoned while the limit is in use, the limit falls to half of
// what runs, and only completions judge: if less completes, no limit helps; the limit returns, and stays for longer each time.
// Otherwise it falls again, down to one if need be, until executions complete; then the baseline is learned anew.
//
// A compartment has this half for itself, and is not cut for a trial. Compartments also vote on what they share: each compares
// its last 16 execution times with its usual ones, and has become slower if they are longer by 5 standard deviations and by a
// tenth. Where two or more have, and none in which calls end has not, the least slowed says which share of the work waits; that
// share is cut, and verified over all. One in which nothing has ended for four execution times, and a second, says nothing.
// What is slower is usual after a minute, or 32 execution times if that is more, or once a cut has shown that nothing waits.
//
// # Memory
//
// Live data may use GOMEMLIMIT, or 0.75 of the cgroup's limit / (1 + GOGC / 100), because the collector does not keep that one:
// the heap grows by GOGC beyond what is in use. Each collection finds beside + each x running tasks. A Kalman filter estimates
// both and how sure they are: what varies with the number of tasks is theirs; a cache that grows is not. Where a collection finds
// what three deviations do not explain, the tasks may be others. They hold no more than was allocated lately: in 8 times the
// 90th percentile of their times, a second, or the age of the oldest that runs for long.
//
// Tasks may fill the memory up to 0.72 of what live data may use; the collector needs the rest. The limit falls to what fits at
// once, and rises by one task or a tenth with each collection that finds room. While twice as many tasks as run would fit,
// nothing is lowered: in a step the limit at most doubles. Up to 0.86 of the memory an estimate counts less by three standard
// deviations: what is not above 0 then lowers nothing, and lets one more task run with each collection, which may tell. A tenth
// of the memory is always the tasks', whatever a cache or a leak holds. While there is room, a limit grows e-fold a minute, so
// that it forgets what tasks once held. From half of the memory on, memory_near says what is in use, and how much of that no
// task can hold.
//
// # Blind spots
//
//   - Time that a hypervisor takes looks like work that computes for longer.
//   - Work outside the limiter raises delays, and the tasks inside pay, down to one per processor.
//   - If other users of a dependency fill its queue, running less here changes nothing.
//   - A slow dependency that less than half of the tasks of a limiter use stays hidden: give it a limiter or a compartment of
//     its own.
//   - A tiny or mixed dependency, cold: one to four slots fill up before anything is measured, and short executions end first.
//     Set Max.
//   - A few computations of seconds produce too few delay samples to prove anything (C8).
//
// Without processor signals nothing is raised (no_information). Without executions the limit does not grow beyond Initial
// (service_not_fed). If no sample comes for ValidFor, the Stale decision applies: 0.7 of the limit, but not below one task per
// processor (control_silent).
//
// # Sources
//
// Comparing with the delay of an empty queue is TCP Vegas (Brakmo and Peterson, 1994) and Netflix's Gradient2; draining the
// queue to measure it is BBR (Cardwell and others, 2016).
//
// docs/control.md says what each part is good for, docs/guarantees/control.md has the invariants, from C1;
// docs/evidence has the behavior (simulation.md) and rejected alternatives (control-experiments.md).
package control
