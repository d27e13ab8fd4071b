// Gates, ledgers and dispatchers: the functions that read their counters.

package wardenotel

import (
	"time"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// Gate describes an admission gate.
type Gate struct {
	// Stats reads the gate's counters, such as its method of that name. It is called once per collection, never concurrently.
	Stats func() admission.Stats
}

// Ledger describes a lease ledger.
type Ledger struct {
	// Stats counts the results of the ledger's Held and Ready. It is called once per collection, never concurrently.
	Stats func() (LedgerStats, error)
}

// LedgerStats is the state of a ledger. Leases released until a retry is due (Lease.Released) are not in progress and not
// counted.
type LedgerStats struct {
	Held       int           // domains under lease
	OldestHeld time.Duration // age of the oldest lease; 0: none
	Ready      int           // domains with waiting records and no lease
}

// Dispatcher describes the leased work of one process: a dispatch.Consumer, or a dispatch.Dispatcher alone.
type Dispatcher struct {
	// Stats returns the counters of each partition, such as Consumer.Stats. It is called once per collection, never concurrently.
	Stats func() []dispatch.Stats
	// Partitions is the number of partitions of the whole group; less than 1: not shown.
	Partitions int
}
