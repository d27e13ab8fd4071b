// SPDX-License-Identifier: Apache-2.0

// The ledger in memory: its configuration. Package memory has its states.

package lease

import (
	"math"
	"runtime"

	"github.com/stopbank/stopbank/lease/internal/memory"
	"github.com/stopbank/stopbank/lease/internal/nilcheck"
)

// DefaultRetries suits most work as MaxRetries, in Config and in durable.Config, where it has to be asked for: about 40 to 80 s of
// pauses with the defaults of package dispatch.
const DefaultRetries = 10

// Config configures a ledger in memory. The zero value is a ledger without retries and with an unbounded backlog.
type Config struct {
	// MaxRetries is how many Fail calls of a lease lead to a retry; the next one gives the offset up, so an offset gets
	// MaxRetries+1 attempts. 0 to 2147483647; 0: no retries, the first failure is final. DefaultRetries last about 40 to 80 s with
	// the backoff of a dispatcher.
	MaxRetries int
	// MaxBacklog bounds the waiting offsets of one domain. 0: unbounded. Not negative.
	MaxBacklog int
	// Observer, when not nil, receives every decision.
	Observer Observer
}

// NewMemory returns an empty ledger in the memory of this process. It starts no goroutine, and there is nothing to close.
//
// The ledger's calls allocate only to grow, for an error, and for the copies that Ready, Held and Inspect make. They block
// for as long as another call on the same stripe of the domains takes: a few hundred nanoseconds; longer while Inspect copies
// a long backlog, Compact frees a large stripe, or a backlog of many offsets is rehashed. Ready and Held take one lock per
// stripe. The time of Compact grows with the memory that it frees, not with the number of domains; calls on other domains see
// the new floor before it returns, in no particular order.
//
// Error: *InvalidError naming the field.
func NewMemory(cfg Config) (Ledger, error) {
	if cfg.MaxRetries < 0 || cfg.MaxRetries > math.MaxInt32 {
		return nil, &InvalidError{Field: "Config.MaxRetries", Value: cfg.MaxRetries, Allowed: "0 (no retries) to 2147483647"}
	}
	if cfg.MaxBacklog < 0 {
		return nil, &InvalidError{Field: "Config.MaxBacklog", Value: cfg.MaxBacklog, Allowed: "0 (unbounded) or more"}
	}
	if typed := nilcheck.Optional(cfg.Observer); typed != "" {
		return nil, &InvalidError{Field: "Config.Observer", Value: typed, Allowed: "nil (no observer) or an observer"}
	}
	// Stripes are sixteen or more for each core: of calls on different domains one in sixteen meets another's lock when every core
	// does nothing else. More of them cost cache, which costs every call.
	stripes := 1
	for stripes < 16*runtime.GOMAXPROCS(0) {
		stripes *= 2
	}
	return FromEngine(memory.New(0, stripes), cfg), nil
}
