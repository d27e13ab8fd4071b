// SPDX-License-Identifier: Apache-2.0

// Package system has the checks that no single module can make about itself. It contains tests only.
//
//   - workspace_test.go: every go.mod is complete by itself, and works with the oldest supported Go release.
//
//   - imports_test.go: the direction of imports between packages; the three layers need the standard library alone.
//
//   - consumer_test.go: each way to use the modules, in a fresh module.
//
//   - api_test.go: docs/api lists the exported names of each module.
//
//   - invariants_test.go: every numbered invariant of docs/guarantees stands in the failure text of a test.
//
//   - pages_test.go: links, make targets, snippets and first sentences are true, and what a stranger may copy is bounded.
//
//   - reference_test.go: docs/reference.md and docs/packages.md are what the comments in the code say.
//
//   - words_test.go: the pages stay short.
//
//   - production_test.go, workspace_command_test.go: the numbers of docs/production.md, and README's command for a workspace.
//
// Next to it mutants breaks each invariant on purpose and shows which tests notice, growth checks what is promised about costs,
// and alertslive records what the storefront exports in each fault and plays it to the alert rules.
//
// The tests read files of other modules, which the go command's test cache does not track. Run them with -count=1, as make does.
package system
