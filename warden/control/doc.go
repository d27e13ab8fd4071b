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
// counted by the monitor as long, and come on top of the limit, up to 512.
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
// The smaller of the two limits applies. docs/control.md has the algorithm with its units, and
// docs/guarantees/control.md the invariants, from C1; docs/evidence has its behavior (simulation.md) and rejected alternatives
// (control-experiments.md).
package control
