// SPDX-License-Identifier: Apache-2.0

// Package monitor measures the overload signals of a Go process: Go scheduler latency, processor utilization, cgroup
// throttling, execution times and concurrency. It contains no thresholds.
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
//   - No number is compared with a threshold here: that is up to the reader of the sample.
//   - A value that could not be measured is missing, not zero: a [Reading] says whether it exists, and a distribution has
//     its number of observations.
//   - No difference is negative, even when counters restart, GOMAXPROCS changes, or a clock jumps.
//   - Measuring must not disturb the measurement: no allocation, a few microseconds, no goroutine that would have to be
//     scheduled under overload, except those that ask pools.
//
// Because of the last rule, a sample is taken by the caller of [Sampler.Sample]. When all processors are busy, a ticker fires
// late, exactly when a sample matters; then the work itself has to call, and Sample.Gap shows the delay.
//
// No signal sees everything. docs/monitor.md has each signal's unit and blind spots, docs/guarantees/monitor.md
// the invariants, from M1.
package monitor
