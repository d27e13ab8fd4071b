// SPDX-License-Identifier: Apache-2.0

// What an engine may expect of a State.

package step_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease/internal/step"
)

// A copy that was written down and read again leaves the original as it was, and both answer the same calls in the same way.
func TestPropertyStateCopyAnswersAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s step.State
		token := uint64(0)
		apply := func(s *step.State, op step.Op) string {
			var r step.Result
			before := written(s)
			s.Step(&op, &r)
			if r.Changed == bytes.Equal(before, written(s)) {
				t.Fatalf("%+v: Changed is %t, but the state was %x and is %x", op, r.Changed, before, written(s))
			}
			return fmt.Sprintf("%+v", r)
		}
		draw := func() step.Op {
			op := step.Op{
				Kind:   step.Kind(rapid.IntRange(int(step.TryAcquire), int(step.Compact)).Draw(t, "kind")),
				Domain: "A", Offset: rapid.Int64Range(0, 60).Draw(t, "offset"), Fresh: token + 1, Token: token,
			}
			if op.Kind == step.Reclaim {
				op.Token = token + 1 // most leases are to end
			}
			if op.Kind == step.Compact {
				op.Floor = rapid.Int64Range(0, 10).Draw(t, "floor")
			}
			return op
		}
		live := func(s *step.State, n int) (ops []step.Op, answers []string) {
			for range n {
				op := draw()
				ops, answers = append(ops, op), append(answers, apply(s, op))
				if held, ok := s.Leased(); ok {
					token = held.Token
				}
			}
			return ops, answers
		}
		live(&s, rapid.IntRange(0, 120).Draw(t, "before"))
		view := s.Snapshot(0)
		c := copied(t, &s)
		if diff := cmp.Diff(view, c.Snapshot(0)); diff != "" {
			t.Fatalf("the copy differs (-original +copy):\n%s", diff)
		}
		ops, answers := live(&c, rapid.IntRange(1, 60).Draw(t, "after"))
		if diff := cmp.Diff(view, s.Snapshot(0)); diff != "" {
			t.Fatalf("the original changed (-was +is):\n%s", diff)
		}
		if err := s.Audit(); err != nil {
			t.Fatal(err)
		}
		for i, op := range ops { // the replay
			if got := apply(&s, op); got != answers[i] {
				t.Fatalf("%+v: the replay says %s, the first run said %s", op, got, answers[i])
			}
		}
		if diff := cmp.Diff(c.Snapshot(0), s.Snapshot(0)); diff != "" {
			t.Fatalf("the replay ends elsewhere (-first run +replay):\n%s", diff)
		}
	})
}

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

// copied is s, written down and read again.
func copied(t *rapid.T, s *step.State) (c step.State) {
	if err := c.Decode(written(s)); err != nil {
		t.Fatal(err)
	}
	return c
}

func written(s *step.State) []byte {
	return s.Append(nil)
}
