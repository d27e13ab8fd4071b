// SPDX-License-Identifier: Apache-2.0

// Package monitor measures the overload signals of a Go process: Go scheduler latency, processor utilization, cgroup
// throttling, execution times and concurrency. It judges none of them.
//
// A [Sampler] reads counters of the runtime and the kernel, and each [Sample] has their change since the one before: how long
// goroutines waited to run, how much of the allowed processor time was used, how much the cgroup withheld. Its [Recorder] adds
// what only the program knows: how long its work takes, and how much of it runs at once.
//
//	runtime, kernel, pools ──┐
//	Recorder.Start … Span.End ──> Sampler.Sample ──> Sample
//
//	sampler, err := monitor.New()
//	if err != nil {
//		return err
//	}
//	span := sampler.Recorder().Start("resize")
//	resize()
//	span.End()
//	s := sampler.Sample() // every 100 ms
//
// An execution that hangs counts in Service.Running, Service.Concurrency and, after a second or more, in Service.Long, until its
// span ends.
//
// A sample holds measurements only:
//
//   - No number is called good or bad here: that is up to the reader of the sample.
//   - A value that could not be measured is missing, not zero: a [Reading] says whether it exists, and a distribution has
//     its number of observations.
//   - No difference is negative, even when counters restart, GOMAXPROCS changes, or a clock jumps.
//   - Measuring must not disturb the measurement: next to no allocation, a few microseconds, no goroutine that would have
//     to be scheduled under overload, except those that ask pools.
//
// Because of the last rule, a sample is taken by the caller of [Sampler.Sample]. When all processors are busy, a ticker fires
// late, exactly when a sample matters; then the work itself has to call, and Sample.Gap shows the delay.
//
// # Signals
//
//   - Lag: scheduling latency by percentile, /sched/latencies:seconds. Blind to waits for locks, connections and the
//     kernel. The runtime observes about one delay in eight, so trust a percentile only as far as its Count.
//   - Runnable: goroutines ready to run, per processor, at one instant, /sched/goroutines/runnable:goroutines, from Go 1.26 on.
//     Blind to everything between two samples, and to system calls.
//   - Utilization: CPU time used / allowed, 0 to 1, by getrusage, GOMAXPROCS and the cgroup's quota; on Unix only. Blind to
//     other processes.
//   - Throttled: CPU time withheld / (elapsed x GOMAXPROCS), 0 to 1, by the cgroup's cpu.stat, once a second. Blind to cgroup
//     levels above the container's mount. Of all levels the tightest quota and the longest throttling count.
//   - Share: CPU time got / wanted, 0 to 1, by /proc/self/task/*/schedstat, once a second; on Linux only. See below.
//   - Memory: the limit, what the last collection found in use, collections, and what is allocated, by /gc/heap/live:bytes and
//     /gc/heap/allocs:bytes, GOMEMLIMIT, GOGC, and the cgroup's memory.max once a second. Blind to what is not on Go's heap:
//     cgo, mapped files, other processes of the container.
//   - Service: execution time by percentile, executions per second, concurrency and abandoned executions, of what is recorded;
//     Parts has the same of each compartment.
//   - Pools: connections in use, most, waiting. Blind to what waits behind the pool.
//
// No signal suffices alone: Utilization cannot tell a busy process from one with a queue, a median misses what a 90th
// percentile shows, Lag has few observations while nothing yields, and none of them shows the kernel's queue of connections.
//
// # Share
//
// A thread that is ready and does not run waits for a processor. Linux counts how long (run delay), and Share compares it with
// the time that threads ran:
//
//	used    CPU time per second: processors in use
//	waited  run delay per second: threads that wait, less 0.1 ms for each time that a thread gets a processor
//	own     the larger of used · (GOMAXPROCS - c) / c and the processors that the quota withheld
//	c       processors that the process may use: by its affinity, or the cgroup's quota if that is less
//	Share = used / min(used + waited - own, c)
//
// Waiting that is not stolen is left out. Threads beyond c wait for each other: with GOMAXPROCS above the quota, or a collector
// on all processors, that is own. An idle processor may take 0.1 ms to wake up. And nobody can want more than c.
//
// Share is missing where the kernel counts nothing, while less than a hundredth of a processor is wanted, for the first second,
// and where the kernel's clock has not gone as far as the program's (a test with a clock of its own). A value covers a second,
// so a neighbour is known a second after it has come.
//
// 32 threads are read, and their files stay open. A process with more of them keeps those that run: each sample takes note of
// the thread that it runs on, and once a second up to eight that were idle give way to others. The rest are assumed to wait
// alike; if those that are read used less than a tenth of the CPU time, Share is missing. What a thread did in its first second
// is not counted.
//
// Threads in system calls and cgo come on top of GOMAXPROCS. If they compute, they wait for the process's other threads, and
// that counts as stolen. Where GOMAXPROCS exceeds c and the process uses little, a neighbour is in part taken for own: Share is
// too high. A hypervisor that takes processors from the whole machine is not seen: its guest counts that time as used. A
// sidecar under the same quota counts as a neighbour until the quota is used up.
//
// docs/guarantees/monitor.md has the invariants, from M1.
package monitor
