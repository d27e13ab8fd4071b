package lease_test

// This file holds every answer against the naive model, and so L1 to L5, L7 to L9 and L12 at once.

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/model"
)

// Every call and answer, against the model, with Ready, Held and the inner structures checked as well.
func TestPropertyL1L2L3L4L5L7L8L9L12_Machine(t *testing.T) {
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
					return err
				}
				if d.Lease != nil { // the model of a domain knows nothing of the tokens of others
					if of := owner[d.Lease.Token]; of != "" && of != s.call.Domain {
						return fmt.Errorf("token %d went to %s before", d.Lease.Token, of)
					}
					owner[d.Lease.Token] = s.call.Domain
				}
				return d.Accept(h.cfg, model.Call{Domain: s.call.Domain}, model.Reply{View: s.after})
			}
		})
		t.Repeat(map[string]func(*rapid.T){
			"move": h.move,
			"": func(t *rapid.T) {
				if err := h.ledger.Audit(); err != nil {
					t.Fatal(err)
				}
				checkWalks(t, h.ledger, models)
			},
		})
	})
	t.Logf("%d steps", made)
}

// checkWalks holds Ready and Held against the models.
func checkWalks(t *rapid.T, m *lease.Memory, models map[string]*model.Domain) {
	ready, held := map[string]int64{}, map[string]lease.Lease{}
	for head, err := range m.Ready(ctx) {
		if _, twice := ready[head.Domain]; twice || err != nil {
			t.Fatalf("Ready: %+v, %v", head, err)
		}
		ready[head.Domain] = head.Offset
	}
	for l, err := range m.Held(ctx) {
		if _, twice := held[l.Domain]; twice || err != nil {
			t.Fatalf("Held: %+v, %v", l, err)
		}
		held[l.Domain] = l
	}
	for name, d := range models {
		switch {
		case d.Lease != nil:
			if held[name] != *d.Lease {
				t.Fatalf("%s: Held %+v, want %+v", name, held[name], *d.Lease)
			}
			delete(held, name)
		case len(d.Backlog) > 0:
			if head, ok := ready[name]; !ok || head != d.Backlog[0] {
				t.Fatalf("%s: Ready %d %t, want %d", name, head, ok, d.Backlog[0])
			}
			delete(ready, name)
		}
	}
	if len(ready)+len(held) > 0 {
		t.Fatalf("neither ready nor held: %v %v", ready, held)
	}
}
