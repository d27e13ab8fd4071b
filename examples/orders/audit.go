// The audit: what the register holds, against what was ordered.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// audit prints and checks the effects.
func (s *services) audit(ctx context.Context, o options) error {
	register, err := s.js.KeyValue(ctx, s.effects)
	if err != nil {
		return err
	}
	accounts := map[string]account{}
	for c := range o.customers {
		entry, err := register.Get(ctx, customer(c))
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			continue
		} else if err != nil {
			return err
		}
		var a account
		if err := json.Unmarshal(entry.Value(), &a); err != nil {
			return err
		}
		accounts[customer(c)] = a
	}
	orders, findings := examine(o, accounts)
	fmt.Printf("audit: %d customers, %d orders: each once, in order, under rising tokens: %v\n", len(accounts), orders, len(findings) == 0)
	for _, f := range findings[:min(len(findings), 20)] {
		fmt.Println("  ", f)
	}
	if len(findings) > 0 {
		return fmt.Errorf("%d findings", len(findings))
	}
	return nil
}

// examine compares the accounts with the orders: sequence i+1 of the stream is of customer i·7919 mod customers.
func examine(o options, accounts map[string]account) (orders int, findings []string) {
	want := map[string][]int64{}
	for i := range o.orders {
		c := customer(i * 7919 % o.customers)
		want[c] = append(want[c], int64(i)+1)
	}
	for c := range o.customers {
		name := customer(c)
		a := accounts[name]
		orders += len(a.Done)
		for i, order := range want[name] {
			if i >= len(a.Done) {
				findings = append(findings, fmt.Sprintf("%s: order %d is missing", name, order))
			} else if a.Done[i].Order != order {
				findings = append(findings, fmt.Sprintf("%s: place %d holds order %d instead of %d", name, i, a.Done[i].Order, order))
			}
		}
		for i, e := range a.Done {
			if i >= len(want[name]) {
				findings = append(findings, fmt.Sprintf("%s: order %d is too much", name, e.Order))
			}
			if i > 0 && e.Token <= a.Done[i-1].Token {
				findings = append(findings, fmt.Sprintf("%s: order %d under token %d after %d", name, e.Order, e.Token, a.Done[i-1].Token))
			}
		}
	}
	return orders, findings
}
