// The orders, who buys them, and what they leave behind.

package main

import (
	"fmt"

	"github.com/stopbank/stopbank/lease"
)

// account has the effects of a customer's orders and the highest token that has written it.
type account struct {
	Token lease.Token `json:"token"`
	Done  []effect    `json:"done"`
}

type effect struct {
	Order   int64       `json:"order"`
	Token   lease.Token `json:"token"`
	Replica int         `json:"replica"`        // that wrote it
	Back    bool        `json:"back,omitempty"` // the replica had lost its partitions, and has one again
}

// check validates the options.
func (o options) check() error {
	if o.replicas < 3 {
		return fmt.Errorf("-replicas is %d; allowed: 3 or more", o.replicas)
	}
	if o.partitions <= o.replicas {
		return fmt.Errorf("-partitions is %d; allowed: more than -replicas, %d", o.partitions, o.replicas)
	}
	return nil
}

// buyer is the customer of order i, counted from 0. Consecutive orders have different customers.
func buyer(o options, i int) string { return customer(i * 7919 % o.customers) }

func customer(n int) string { return fmt.Sprintf("customer-%04d", n) }
