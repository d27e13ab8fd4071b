// What is not warden's, described by functions, so that nothing of it has to be imported.

package wardenprom

import (
	"time"

	"github.com/stopbank/stopbank/warden/internal/facts"
)

// Gate describes an admission gate.
type Gate struct {
	// Stats reads the gate's counters. It is called at each scrape, by one goroutine at a time.
	Stats func() GateStats
}

// GateStats are the fields of admission.Stats by their names there: Rejected includes RejectedClosed.
type GateStats struct {
	Limit, InFlight          int
	Admitted, Released       uint64
	Rejected, RejectedClosed uint64
	ObserverPanics           uint64
}

// Ledger describes a ledger of work leases.
type Ledger struct {
	// Stats counts what the ledger's Held and Ready yield. It is called at each scrape, by one goroutine at a time.
	Stats func() (LedgerStats, error)
}

// LedgerStats are the state of a ledger. Leases that were given back until a retry is due (Lease.Released) are not under way, and are left out.
type LedgerStats struct {
	Held       int           // domains under lease
	OldestHeld time.Duration // age of the oldest lease; 0: there is none
	Ready      int           // domains without a lease in which something waits
}

// Dispatcher describes the leased work of one process: a dispatch.Consumer, or a dispatch.Dispatcher alone.
type Dispatcher struct {
	// Stats reads the counters of each partition that there is. It is called at each scrape, by one goroutine at a time.
	Stats func() []DispatcherStats
	// Partitions is how many the whole group has to share out; less than 1: that is not shown.
	Partitions int
}

// DispatcherStats are dispatch.Stats field by field, so that one is converted to the other.
type DispatcherStats struct {
	Name string // the partition's; may be empty
	Held bool   // it has been taken

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
