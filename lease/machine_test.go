// SPDX-License-Identifier: Apache-2.0

// Every answer against the naive model, and so L1 to L5, L7 to L9 and L12 at once.

package lease_test

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
	machine "github.com/stopbank/stopbank/lease/internal/step"
	"github.com/stopbank/stopbank/lease/leasetest"
)

// The suite that every ledger passes: the contract's scenarios, and histories of callers that race.
func TestMemory(t *testing.T) {
	defer goleak.VerifyNone(t)
	leasetest.Run(t, func(t testing.TB, cfg lease.Config) lease.Ledger { return open(t, cfg) })
}

// Every call and answer, against the model, with Ready, Held, the other domains and the inner structures checked as well.
func TestPropertyMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := begin(t)
		t.Repeat(map[string]func(*rapid.T){
			"move": h.move,
			"": func(t *rapid.T) {
				if err := h.ledger.Audit(); err != nil {
					t.Fatalf("L2: %v", err)
				}
				h.look(t)
			},
		})
	})
}

// about is the number that speaks of a step which the model does not accept, for that reason.
func about(s step, why error) string {
	head := len(s.before.Backlog) > 0 && s.granted() && s.reply.Acquisition.Lease.Offset != s.before.Backlog[0]
	switch op := s.call.Op; {
	case strings.Contains(why.Error(), "went to"): // another domain
		return "L9"
	case s.granted() && s.before.Lease != nil:
		return "L1"
	case s.granted() && head:
		return "L3"
	case op == machine.TryAcquire, op == machine.Offer, op == machine.AcquireNext:
		if s.granted() || len(s.after.Backlog) != len(s.before.Backlog) {
			return "L4" // something that is done goes on, unless it is there twice
		}
		return "L2"
	case op == machine.Compact:
		return "L4"
	case (s.reply.Err == nil) != (s.before.Lease != nil && s.before.Lease.Token == s.call.Token):
		return "L5"
	case op == machine.Reclaim, op == machine.Release:
		return "L12"
	case !slices.Equal(s.before.Backlog, s.after.Backlog), op == machine.Succeed:
		return "L8"
	}
	return "L7"
}

// look holds every domain, Ready and Held against the models.
func (h *history) look(t *rapid.T) {
	switch err := h.models.Look(ctx, h.ledger); {
	case err == nil:
	case strings.Contains(err.Error(), "Ready"):
		t.Fatalf("L3: %v", err)
	case strings.Contains(err.Error(), "Held"):
		t.Fatalf("L1: %v", err)
	default:
		t.Fatalf("L2: %v", err) // a call on another domain has changed it
	}
}
