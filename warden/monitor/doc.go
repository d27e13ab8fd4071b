// Package monitor measures what a Go process does with its processors and its work. It judges nothing.
//
// A [Sampler] reads what the runtime and the kernel count, and each [Sample] says what these counters did since the one
// before: how long goroutines waited to run, how much of the allowed processor time was used, how much the cgroup
// withheld. A [Recorder] adds what only the program knows: how long its work takes, and how much of it goes on at once.
//
// All of it follows from one sentence: a sample holds facts. So
//
//   - no number here is compared with one that says what is much: that is for whoever reads the sample;
//   - what could not be observed is missing, not zero: a [Reading] says whether it exists, and a distribution how many
//     observations it has;
//   - what was counted is never negative, also when counters begin anew, GOMAXPROCS changes, or a clock jumps;
//   - observing must not cost what it observes: no allocation, a few microseconds, no goroutine that would have to be
//     scheduled when nothing is.
//
// The last has a consequence. A sample is taken when somebody calls [Sampler.Sample], and by that caller. When all
// processors are taken, a ticker comes late, just when a sample matters; then the work itself has to call, and
// Sample.Gap says how late it was.
//
// No signal sees everything. docs/monitor.md says for each what its unit is and what it is blind to, and has the
// invariants M1 to M5.
package monitor
