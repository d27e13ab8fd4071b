package main

// What the program prints is part of it; and what a dependency that hangs costs its own compartment.

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func Example() {
	if err := run(os.Stdout); err != nil {
		panic(err)
	}
	// Output:
	// nothing hangs: orders shipped 8, to be shipped later 0, lost 0; stock pages 8
	// shipping hangs: orders shipped 0, to be shipped later 8, lost 0; stock pages 8
	// payment hangs: orders shipped 0, to be shipped later 0, lost 8; stock pages 8
	// nothing hangs: orders shipped 8, to be shipped later 0, lost 0; stock pages 8
	// payment: calls that failed or were rejected: true, answered by the fallback: 0
	// inventory: calls that failed or were rejected: false, answered by the fallback: 0
	// shipping: calls that failed or were rejected: true, answered by the fallback: 8
}

// TestHangingCostsOnlyItsOwn: in the compartment that hangs everybody is rejected or times out, its dependency is not sent
// more than its places allow, and all of them come back.
func TestHangingCostsOnlyItsOwn(t *testing.T) {
	defer goleak.VerifyNone(t)
	s, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	s.hang("shipping")
	if n := s.day(); n != (tally{later: 8, pages: 8}) {
		t.Errorf("%+v", n)
	}
	for _, c := range s.set.Snapshot().Compartments {
		if c.Name != "shipping" {
			if c.Outcomes["succeeded"] != c.Submitted {
				t.Errorf("%s: %d of %d succeeded", c.Name, c.Outcomes["succeeded"], c.Submitted)
			}
			continue
		}
		if c.Submitted != 8 || c.Admitted < 2 || c.Outcomes["timeout_running"] != c.Admitted {
			t.Errorf("shipping: submitted %d, admitted %d, %v, rejected %v, left %v", c.Submitted, c.Admitted, c.Outcomes, c.Rejected, c.Left)
		}
		if got := uint64(s.deps["shipping"].calls.Load()); got > c.Admitted {
			t.Errorf("shipping was sent %d calls, %d were admitted", got, c.Admitted)
		}
		if c.Degraded != 8 {
			t.Errorf("%d answers of the fallback", c.Degraded)
		}
	}
}
