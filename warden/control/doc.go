// Package control judges: from what a monitor measured it decides how many tasks may run, and says why. It never touches
// a task, and hears nothing from whoever does.
//
// A [Controller] is a small state and a pure step. [Controller.Step] takes one sample and gives one decision; it reads no clock and
// draws no random number, so the same samples give the same decisions, today and when they are replayed ([Replay],
// [Recorder]).
//
// Two things limit how much can run to some purpose, and each has its own half of the law:
//
//   - Processors. What waits for one shows in scheduling delays, in the number of runnable goroutines and in throttling. The worst
//     of these, as a number from 0 to 1, is the pressure; a busy processor with no queue adds to it only so far that
//     growth stops. The target grows below a band of pressure, holds inside and shrinks above it.
//   - Everything else that work waits for. No signal of the process shows it, but execution times do: they grow, while running more
//     gets no more done. Because slower work looks just the same, a cut has to prove itself: what completes after it shows whether it took
//     waiting away, or work, and then it is undone.
//
// The smaller of the two targets rules. The law with its units, the invariants C1 to C13 and what was tried are in
// docs/control.md; docs/evidence/simulation.md shows what comes of it.
package control
