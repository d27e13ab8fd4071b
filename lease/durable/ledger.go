// Package durable is the ledger of package lease over any store that can swap a record whose version is known.
package durable

// This file is the ledger: Config and New.

import (
	"github.com/stopbank/stopbank/lease"
)

// Config configures a Ledger.
type Config struct {
	// Store keeps the ledger. Required. Several Ledgers, in one process or in many, may share one ledger in one store.
	Store Store
	// MaxRetries is how many Fail calls of a lease lead to a retry; one more gives the offset up. 0 to 2147483647.
	MaxRetries int
	// MaxBacklog bounds the offsets that wait in one domain. 0: unbounded. Not negative.
	MaxBacklog int
	// Observer, when not nil, is told every decision.
	Observer lease.Observer
	// MaxCached bounds the idle domains whose latest state is kept in memory. 0: 10,000. Not negative.
	MaxCached int
}
