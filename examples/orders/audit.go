// The audit compares the stored effects with the published orders.

package main

import (
	"context"
	"fmt"
)

// audit checks the effects and prints its findings.
func audit(ctx context.Context, o options, effects register) error {
	accounts := map[string]account{}
	for c := range o.customers {
		a, version, err := effects.load(ctx, customer(c))
		if err != nil {
			return err
		}
		if version > 0 {
			accounts[customer(c)] = a
		}
	}
	orders, back, findings := examine(o, accounts)
	fmt.Printf("audit: %d customers, %d orders; each applied once, in order, under rising fencing tokens: %v\n", len(accounts),
		orders, len(findings) == 0)
	fmt.Printf("audit: replica %d, which was frozen, did %d orders after its return\n", frozen, back)
	for _, f := range findings[:min(len(findings), 20)] {
		fmt.Println("  ", f)
	}
	if len(findings) > 0 {
		return fmt.Errorf("%d findings", len(findings))
	}
	return nil
}

// examine compares the accounts with the orders. back are those that the frozen replica did after its return.
func examine(o options, accounts map[string]account) (orders, back int, findings []string) {
	want := map[string][]int64{}
	for i := range o.orders {
		want[buyer(o, i)] = append(want[buyer(o, i)], int64(i)+1)
	}
	for c := range o.customers {
		name := customer(c)
		a := accounts[name]
		orders += len(a.Done)
		for i, order := range want[name] {
			if i >= len(a.Done) {
				findings = append(findings, fmt.Sprintf("%s: order %d is missing", name, order))
			} else if a.Done[i].Order != order {
				findings = append(findings, fmt.Sprintf("%s: position %d has order %d instead of %d", name, i, a.Done[i].Order, order))
			}
		}
		for i, e := range a.Done {
			if e.Replica == frozen && e.Back {
				back++
			}
			if i >= len(want[name]) {
				findings = append(findings, fmt.Sprintf("%s: order %d is unexpected", name, e.Order))
			}
			if i > 0 && e.Token <= a.Done[i-1].Token {
				findings = append(findings, fmt.Sprintf("%s: order %d under token %d after %d", name, e.Order, e.Token, a.Done[i-1].Token))
			}
		}
	}
	if back == 0 && freezes {
		findings = append(findings, fmt.Sprintf("replica %d did nothing after its return", frozen))
	}
	return orders, back, findings
}
