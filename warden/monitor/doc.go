// Package monitor measures the overload signals of a Go process: Go scheduler latency, processor utilization, cgroup
// throttling, execution times and concurrency. It contains no thresholds.
//
// A [Sampler] reads counters of the runtime and the kernel, and each [Sample] has their change since the one before: how long
// goroutines waited to run, how much of the allowed processor time was used, how much the cgroup withheld. A [Recorder] adds
// what only the program knows: how long its work takes, and how much of it runs at once.
//
// A sample holds measurements only:
//
//   - No number is compared with a threshold here: that is up to the reader of the sample.
//   - A value that could not be measured is missing, not zero: a [Reading] says whether it exists, and a distribution has
//     its number of observations.
//   - No difference is negative, even when counters restart, GOMAXPROCS changes, or a clock jumps.
//   - Measuring must not disturb the measurement: no allocation, a few microseconds, no goroutine that would have to be
//     scheduled under overload, but those that ask pools.
//
// Because of the last rule, a sample is taken by the caller of [Sampler.Sample]. When all processors are busy, a ticker fires
// late, exactly when a sample matters; then the work itself has to call, and Sample.Gap shows the delay.
//
// No signal sees everything. docs/monitor.md has each signal's unit and blind spots, and the invariants M1 to M6.
package monitor
