// SPDX-License-Identifier: Apache-2.0

// Package system has the checks that no single module can make about itself. It contains tests only.
//
//   - workspace_test.go: every go.mod is complete by itself, and works with the oldest supported Go release.
//
//   - imports_test.go: the direction of imports between packages; the three layers need the standard library alone.
//
//   - copied_test.go: a layer that is copied into another tree passes its tests there.
//
//   - api_test.go: docs/api lists the exported names of each module.
//
//   - invariants_test.go: every numbered invariant of docs/guarantees stands in the failure text of a test.
//
//   - pages_test.go: links, make targets, snippets and first sentences are true, and what a stranger may copy is bounded.
//
//   - size_test.go: nothing grows unseen.
//
//   - production_test.go, workspace_command_test.go: the numbers of docs/production.md, and README's command for a workspace.
//
// Next to it mutants breaks packages and shows what their tests miss, growth checks what is promised about costs, alertslive records
// what the storefront exports in each fault and plays it to the alert rules, and faults plays the blind fault game. deploy runs what
// they look at; made and page write pages of evidence.
//
// The tests read files of other modules, which the go command's test cache does not track. Run them with -count=1, as make does.
package system
