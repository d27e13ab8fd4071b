// Gates, ledgers and dispatchers, described by functions so that this package need not import them.

package wardenotel

import (
	"time"

	"github.com/stopbank/stopbank/warden/internal/facts"
)

// Gate describes an admission gate.
type Gate struct {
	// Stats reads the gate's counters. It is called once per collection, never concurrently.
	Stats func() GateStats
}

// GateStats has the fields of admission.Stats under the same names: Rejected includes RejectedClosed.
type GateStats struct {
	Limit, InFlight          int
	Admitted, Released       uint64
	Rejected, RejectedClosed uint64
	ObserverPanics           uint64
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
	// Stats reads the counters of each partition. It is called once per collection, never concurrently.
	Stats func() []DispatcherStats
	// Partitions is the number of partitions of the whole group; less than 1: not shown.
	Partitions int
}

// DispatcherStats has the fields of dispatch.Stats, so that one converts to the other.
type DispatcherStats struct {
	Name string // of the partition; may be empty
	Held bool   // this process holds the partition

	Working, Ready, Pausing, Waiting, Fenced, Behind, Suspects, Paced int

	Buffered int
	Oldest   time.Duration
	Paused   bool

	Succeeded, Skipped, GaveUp, Permanent, Died, DeadLettered, DeadLetterFailed, Retried, Postponed, Reclaimed, Lost uint64

	ObserverPanics         uint64
	Floor, Committed, Next int64
	Lag                    int64 // less than 0: unknown
}

// The functions as package facts takes them. A nil function stays one, to be found there.

func gates(of map[string]Gate) map[string]func() facts.GateStats {
	all := map[string]func() facts.GateStats{}
	for name, g := range of {
		all[name] = nil
		if g.Stats != nil {
			all[name] = func() facts.GateStats { return facts.GateStats(g.Stats()) }
		}
	}
	return all
}

func ledgers(of map[string]Ledger) map[string]func() (facts.LedgerStats, error) {
	all := map[string]func() (facts.LedgerStats, error){}
	for name, l := range of {
		all[name] = nil
		if l.Stats != nil {
			all[name] = func() (facts.LedgerStats, error) {
				s, err := l.Stats()
				return facts.LedgerStats(s), err
			}
		}
	}
	return all
}

func dispatchers(of map[string]Dispatcher) map[string]facts.Dispatcher {
	all := map[string]facts.Dispatcher{}
	for name, d := range of {
		shown := facts.Dispatcher{Partitions: d.Partitions}
		if d.Stats != nil {
			shown.Stats = func() (each []facts.DispatcherStats) {
				for _, s := range d.Stats() {
					each = append(each, facts.DispatcherStats(s))
				}
				return each
			}
		}
		all[name] = shown
	}
	return all
}
