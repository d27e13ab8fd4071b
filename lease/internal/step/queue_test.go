// SPDX-License-Identifier: Apache-2.0

// What a search in the backlog and a new done offset cost.

package step_test

import (
	"testing"

	"github.com/stopbank/stopbank/lease/internal/step"
)

// A duplicate is found in a number of steps that does not grow with the backlog, whatever the order of arrival. Nor does it matter
// which multiples the offsets are: of small strides, of those near a power of two over the golden ratio (102334155 is a Fibonacci
// number, and a multiplicative hash lays its multiples side by side), of powers of two, of one that scatters them.
func TestBacklogProbesAreShort(t *testing.T) {
	short := func(n int, most float64, strides ...int64) {
		for _, stride := range strides {
			offsets := make([]int64, n)
			for i := range offsets {
				offsets[i] = int64(i) * stride
			}
			if probe := step.BacklogProbe(offsets); probe > most {
				t.Errorf("stride %d, %d offsets: %.1f steps", stride, n, probe)
			}
		}
	}
	short(100_000, 4, 1, -1, 4096, 0xD1342543DE82EF95>>1)
	strides := []int64{102334155, 433494437, 0x9E3779B9, 0x61C8864680B583EB, 0x9E3779B97F4A7C15 >> 1, 1<<40 + 1}
	for stride := int64(1); stride <= 20_000; stride += 1 + stride/16 {
		strides = append(strides, stride)
	}
	for shift := range 50 {
		strides = append(strides, 1<<shift)
	}
	short(16_000, 3, strides...) // of 16,384 slots: the index is as full as it gets
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
