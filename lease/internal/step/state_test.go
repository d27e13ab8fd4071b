// SPDX-License-Identifier: Apache-2.0

// What an engine may expect of a State.

package step_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stopbank/stopbank/lease/internal/step"
)

// 0 is no token, so nothing that might hand it out is carried out.
func TestZeroIsNeverGranted(t *testing.T) {
	for _, kind := range []step.Kind{step.TryAcquire, step.AcquireNext, step.Reclaim} {
		var s step.State
		if kind != step.TryAcquire {
			s.Step(&step.Op{Kind: step.Offer, Domain: "A", Offset: 1}, new(step.Result))
		}
		if kind == step.Reclaim {
			s.Step(&step.Op{Kind: step.AcquireNext, Domain: "A", Fresh: 3}, new(step.Result))
		}
		before := s.Snapshot(0)
		var r step.Result
		s.Step(&step.Op{Kind: kind, Domain: "A", Offset: 1, Token: 3}, &r)
		if diff := cmp.Diff(before, s.Snapshot(0)); diff != "" || r != (step.Result{Refused: step.Undefined}) {
			t.Errorf("L9: %v without a fresh token: %+v, and the state (-was +is):\n%s", kind, r, diff)
		}
	}
}

// What was done last is remembered beside the next lease only if it lies at or above the floor.
func TestDoneBelowTheFloorIsNotKept(t *testing.T) {
	for _, end := range []step.Kind{step.Succeed, step.Fail} {
		for floor, want := range map[int64]int{5: 1, 6: 0} {
			var s step.State
			for _, op := range []step.Op{
				{Kind: step.TryAcquire, Offset: 5, Fresh: 1}, {Kind: end, Token: 1},
				{Kind: step.TryAcquire, Offset: 7, Fresh: 2, Floor: floor},
			} {
				var r step.Result
				if s.Step(&op, &r); r.Refused != 0 {
					t.Fatalf("%+v: %+v", op, r)
				}
			}
			if v := s.Snapshot(0); v.Processed+v.Failed != want {
				t.Errorf("L11: 5 has ended by %v, the floor is %d: %+v, want %d done", end, floor, v, want)
			}
		}
	}
}
