// SPDX-License-Identifier: Apache-2.0

// What a search in the backlog and a new done offset cost.

package step_test

import (
	"testing"

	"github.com/stopbank/stopbank/lease/internal/step"
)

// A duplicate is found in a number of steps that does not grow with the backlog, whatever the order of arrival.
func TestBacklogProbesAreShort(t *testing.T) {
	const n = 100_000
	for name, at := range map[string]func(i int64) int64{
		"rising":    func(i int64) int64 { return i },
		"falling":   func(i int64) int64 { return -i },
		"strided":   func(i int64) int64 { return i * 4096 },
		"scattered": func(i int64) int64 { return int64(uint64(i) * 0xD1342543DE82EF95) },
	} {
		offsets := make([]int64, n)
		for i := range offsets {
			offsets[i] = at(int64(i))
		}
		if probe := step.BacklogProbe(offsets); probe > 4 {
			t.Errorf("%s: %.1f steps", name, probe)
		}
	}
}

// Nor does it matter which multiples the offsets are: of small strides, of those near a power of two over the golden
// ratio (102334155 is a Fibonacci number, and a multiplicative hash lays its multiples side by side), of powers of two.
func TestBacklogProbesAreShortForEveryStride(t *testing.T) {
	strides := []int64{102334155, 433494437, 0x9E3779B9, 0x61C8864680B583EB, 0x9E3779B97F4A7C15 >> 1, 1<<40 + 1}
	for stride := int64(1); stride <= 20_000; stride += 1 + stride/16 {
		strides = append(strides, stride)
	}
	for shift := range 50 {
		strides = append(strides, 1<<shift)
	}
	const n = 16_000 // of 16,384 slots: the index is as full as it gets
	for _, stride := range strides {
		offsets := make([]int64, n)
		for i := range offsets {
			offsets[i] = int64(i) * stride
		}
		if probe := step.BacklogProbe(offsets); probe > 3 {
			t.Errorf("stride %d: %.1f steps", stride, probe)
		}
	}
}

// A set that is full of live members grows; it does not move all of them for the room of one.
func TestAFullSetDoesNotMoveForOne(t *testing.T) {
	const n = 20_000
	for _, failures := range []bool{false, true} {
		for _, lag := range []int64{1, 3, 7, 100, 511, 847, 1023, 1279, 2047} {
			if moved := step.TerminalMoves(lag, n, failures); moved > 9*n {
				t.Errorf("L11: lag %d, failures %t: %d members moved for %d new ones", lag, failures, moved, n)
			}
		}
	}
}
