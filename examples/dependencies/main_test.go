package main

// The program's output, and the effect of a hanging dependency on its own compartment and on the others.

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
	// hanging: nothing; orders shipped 8, shipping postponed 0, failed 0; stock pages 8
	// hanging: shipping; orders shipped 0, shipping postponed 8, failed 0; stock pages 8
	// hanging: payment; orders shipped 0, shipping postponed 0, failed 8; stock pages 8
	// hanging: nothing; orders shipped 8, shipping postponed 0, failed 0; stock pages 8
	// payment: failed or rejected calls: true, fallbacks: 0
	// inventory: failed or rejected calls: false, fallbacks: 0
	// shipping: failed or rejected calls: true, fallbacks: 8
}

// TestOtherCompartmentsAreUnaffected: in the compartment of the hanging dependency every call is rejected or times out, the
// dependency receives no more calls than were admitted, and all slots are released.
func TestOtherCompartmentsAreUnaffected(t *testing.T) {
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
			t.Errorf("shipping: submitted %d, admitted %d, outcomes %v, rejected %v, left the queue %v", c.Submitted, c.Admitted, c.Outcomes, c.Rejected, c.Left)
		}
		if got := uint64(s.deps["shipping"].calls.Load()); got > c.Admitted {
			t.Errorf("shipping received %d calls, %d were admitted", got, c.Admitted)
		}
		if c.Degraded != 8 {
			t.Errorf("%d fallbacks, want 8", c.Degraded)
		}
	}
}
