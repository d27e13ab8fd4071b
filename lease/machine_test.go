// SPDX-License-Identifier: Apache-2.0

// Every answer against the naive model, and so L1 to L5, L7 to L9 and L12 at once.

package lease_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/model"
	machine "github.com/stopbank/stopbank/lease/internal/step"
)

// Every call and answer, against the model, with Ready, Held and the inner structures checked as well.
func TestPropertyMachine(t *testing.T) {
	made := 0
	rapid.Check(t, func(t *rapid.T) {
		models, owner := map[string]*model.Domain{}, map[lease.Token]string{}
		h := begin(t, func(h *history) func(step) error {
			for _, name := range h.names {
				models[name] = model.New()
			}
			return func(s step) error {
				made++
				d := models[s.call.Domain]
				if err := d.Accept(h.cfg, s.call, s.reply); err != nil {
					return fmt.Errorf("%s: %w", about(s), err)
				}
				if d.Lease != nil { // the model of a domain knows nothing of the tokens of others
					if holder := owner[d.Lease.Token]; holder != "" && holder != s.call.Domain {
						return fmt.Errorf("L9: token %d went to %s before", d.Lease.Token, holder)
					}
					owner[d.Lease.Token] = s.call.Domain
				}
				if err := d.Accept(h.cfg, model.Call{Domain: s.call.Domain}, model.Reply{View: s.after}); err != nil {
					return fmt.Errorf("%s: %w", about(s), err)
				}
				return nil
			}
		})
		t.Repeat(map[string]func(*rapid.T){
			"move": h.move,
			"": func(t *rapid.T) {
				if err := h.ledger.Audit(); err != nil {
					t.Fatalf("L2: %v", err)
				}
				checkWalks(t, h.ledger, models)
			},
		})
	})
	t.Logf("%d steps", made)
}

// about is the number that speaks of a step which the model does not accept.
func about(s step) string {
	head := len(s.before.Backlog) > 0 && s.granted() && s.reply.Acquisition.Lease.Offset != s.before.Backlog[0]
	switch op := s.call.Op; {
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

// checkWalks holds Ready and Held against the models.
func checkWalks(t *rapid.T, m *lease.Memory, models map[string]*model.Domain) {
	ready, held := map[string]int64{}, map[string]lease.Lease{}
	for head, err := range m.Ready(ctx) {
		if _, twice := ready[head.Domain]; twice || err != nil {
			t.Fatalf("L3: Ready: %+v, %v", head, err)
		}
		ready[head.Domain] = head.Offset
	}
	for l, err := range m.Held(ctx) {
		if _, twice := held[l.Domain]; twice || err != nil {
			t.Fatalf("L1: Held: %+v, %v", l, err)
		}
		held[l.Domain] = l
	}
	for name, d := range models {
		switch {
		case d.Lease != nil:
			if held[name] != *d.Lease {
				t.Fatalf("L1: %s: Held %+v, want %+v", name, held[name], *d.Lease)
			}
			delete(held, name)
		case len(d.Backlog) > 0:
			if head, ok := ready[name]; !ok || head != d.Backlog[0] {
				t.Fatalf("L3: %s: Ready %d %t, want %d", name, head, ok, d.Backlog[0])
			}
			delete(ready, name)
		}
	}
	if len(ready)+len(held) > 0 {
		t.Fatalf("L2: neither ready nor held: %v %v", ready, held)
	}
}
