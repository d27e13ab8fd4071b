// Package system holds the checks that no single module can make about itself; the package itself is tests alone.
//
//   - imports_test.go: data flows one way. Which package may import which, and that the three layers need the
//     standard library alone.
//   - modules_test.go: every go.mod stands alone, on the oldest Go release that is supported.
//   - consumer_test.go and vendor_test.go: the ways of use, each in a fresh throw-away module.
//   - invariants_test.go: every numbered invariant of docs/ has a test of that number, and the reverse.
//   - snippets_test.go: every piece of Go in a page stands, line for line, in a file that compiles.
//   - api_test.go: what each module exports is written down in docs/api.
//   - reasons_test.go: the limiter carries the reasons of decisions and never looks at them.
//   - tree_test.go: what is written about the repository is so: links, make targets, opening sentences, no path of
//     anybody's machine.
//
// Beside them lie two programs: mutants breaks each invariant on purpose, torture runs what is random for longer.
//
// Every check is a function from plain data to findings. It runs twice: over the repository, where there may be no
// finding, and over made-up data, where each kind of mistake must be found.
//
// The tests read files of other modules, which the go command's test cache does not notice. Run them as make does,
// with -count=1.
package system
