package lease_test

// This file holds what an engine of its own may expect of State.

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
)

// A copy that was written down and read again leaves the original as it was, and both answer the same calls in the same way.
func TestPropertyStateCopyAnswersAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s lease.State
		token := lease.Token(0)
		step := func(s *lease.State, op lease.Op) string {
			var r lease.Result
			before := written(s)
			err := s.Step(&op, &r)
			if r.Changed == bytes.Equal(before, written(s)) {
				t.Fatalf("%+v: Changed is %t, but the state was %x and is %x", op, r.Changed, before, written(s))
			}
			return fmt.Sprintf("%+v %v", r, err)
		}
		draw := func() lease.Op {
			op := lease.Op{
				Kind:   lease.OpKind(rapid.IntRange(int(lease.OpTryAcquire), int(lease.OpCompact)).Draw(t, "kind")),
				Domain: "A", Offset: rapid.Int64Range(0, 60).Draw(t, "offset"), Fresh: token + 1, Token: token,
			}
			if op.Kind == lease.OpReclaim {
				op.Token = token + 1 // most leases are to end
			}
			if op.Kind == lease.OpCompact {
				op.Floor = rapid.Int64Range(0, 10).Draw(t, "floor")
			}
			return op
		}
		live := func(s *lease.State, n int) (ops []lease.Op, answers []string) {
			for range n {
				op := draw()
				ops, answers = append(ops, op), append(answers, step(s, op))
				if held, ok := s.Leased("A"); ok {
					token = held.Token
				}
			}
			return ops, answers
		}
		live(&s, rapid.IntRange(0, 120).Draw(t, "before"))
		view := s.View("A", 0)
		c := copied(t, &s)
		if diff := cmp.Diff(view, c.View("A", 0)); diff != "" {
			t.Fatalf("the copy differs (-original +copy):\n%s", diff)
		}
		ops, answers := live(&c, rapid.IntRange(1, 60).Draw(t, "after"))
		if diff := cmp.Diff(view, s.View("A", 0)); diff != "" {
			t.Fatalf("the original changed (-was +is):\n%s", diff)
		}
		if err := s.Audit(); err != nil {
			t.Fatal(err)
		}
		for i, op := range ops { // the replay
			if got := step(&s, op); got != answers[i] {
				t.Fatalf("%+v: the replay says %s, the first run said %s", op, got, answers[i])
			}
		}
		if diff := cmp.Diff(c.View("A", 0), s.View("A", 0)); diff != "" {
			t.Fatalf("the replay ends elsewhere (-first run +replay):\n%s", diff)
		}
	})
}

// 0 is no token, so nothing that might hand it out is carried out.
func TestZeroIsNeverGranted(t *testing.T) {
	for _, kind := range []lease.OpKind{lease.OpTryAcquire, lease.OpAcquireNext, lease.OpReclaim} {
		var s lease.State
		if kind != lease.OpTryAcquire {
			if err := s.Step(&lease.Op{Kind: lease.OpOffer, Domain: "A", Offset: 1}, new(lease.Result)); err != nil {
				t.Fatal(err)
			}
		}
		if kind == lease.OpReclaim {
			if err := s.Step(&lease.Op{Kind: lease.OpAcquireNext, Domain: "A", Fresh: 3}, new(lease.Result)); err != nil {
				t.Fatal(err)
			}
		}
		before := s.View("A", 0)
		var r lease.Result
		err := s.Step(&lease.Op{Kind: kind, Domain: "A", Offset: 1, Token: 3}, &r)
		var invalid *lease.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "Op.Fresh" {
			t.Errorf("L9: %v without a fresh token: %v", kind, err)
		}
		if diff := cmp.Diff(before, s.View("A", 0)); diff != "" || r != (lease.Result{}) {
			t.Errorf("L9: %v without a fresh token: %+v, and the state (-was +is):\n%s", kind, r, diff)
		}
	}
}

// What was done last is remembered beside the next lease only if it lies at or above the floor.
func TestDoneBelowTheFloorIsNotKept(t *testing.T) {
	for _, end := range []lease.OpKind{lease.OpSucceed, lease.OpFail} {
		for floor, want := range map[int64]int{5: 1, 6: 0} {
			var s lease.State
			for _, op := range []lease.Op{
				{Kind: lease.OpTryAcquire, Offset: 5, Fresh: 1}, {Kind: end, Token: 1}, {Kind: lease.OpTryAcquire, Offset: 7, Fresh: 2, Floor: floor},
			} {
				if err := s.Step(&op, new(lease.Result)); err != nil {
					t.Fatal(err)
				}
			}
			if v := s.View("A", 0); v.Processed+v.Failed != want {
				t.Errorf("L11: 5 has ended by %v, the floor is %d: %+v, want %d done", end, floor, v, want)
			}
		}
	}
}

// copied is s, written down and read again.
func copied(t *rapid.T, s *lease.State) (c lease.State) {
	if err := c.UnmarshalBinary(written(s)); err != nil {
		t.Fatal(err)
	}
	return c
}

func written(s *lease.State) []byte {
	b, _ := s.AppendBinary(nil)
	return b
}
