// Package system has the checks that no single module can make about itself. It contains tests only.
//
//   - imports_test.go: the direction of imports between packages; the three layers need the standard library alone.
//   - modules_test.go: every go.mod is complete by itself, and works with the oldest supported Go release.
//   - consumer_test.go and vendor_test.go: each way to use the modules, in a fresh module.
//   - invariants_test.go: every numbered invariant of docs/ has a test with that number, and the reverse.
//   - snippets_test.go: every Go snippet in a page occurs, line for line, in a file that compiles.
//   - api_test.go: docs/api lists the exported names of each module.
//   - reasons_test.go: the limiter passes on the reasons of decisions and never interprets them.
//   - tree_test.go: statements about the repository are true: links, make targets, first sentences, no local paths.
//
// Two programs are next to it: mutants breaks each invariant on purpose, torture runs the randomized tests for longer.
//
// Every check is a function from plain data to findings. It runs twice: on the repository, where it must find nothing, and on
// made-up data, where it must find each kind of mistake.
//
// The tests read files of other modules, which the go command's test cache does not track. Run them with -count=1, as make does.
package system
