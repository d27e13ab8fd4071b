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
	orders, findings := examine(o, accounts)
	fmt.Printf("audit: %d customers, %d orders; each applied once, in order, under rising fencing tokens: %v\n", len(accounts), orders, len(findings) == 0)
	for _, f := range findings[:min(len(findings), 20)] {
		fmt.Println("  ", f)
	}
	if len(findings) > 0 {
		return fmt.Errorf("%d findings", len(findings))
	}
	return nil
}

// examine compares the accounts with the orders.
func examine(o options, accounts map[string]account) (orders int, findings []string) {
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
			if i >= len(want[name]) {
				findings = append(findings, fmt.Sprintf("%s: order %d is unexpected", name, e.Order))
			}
			if i > 0 && e.Token <= a.Done[i-1].Token {
				findings = append(findings, fmt.Sprintf("%s: order %d under token %d after %d", name, e.Order, e.Token, a.Done[i-1].Token))
			}
		}
	}
	return orders, findings
}
