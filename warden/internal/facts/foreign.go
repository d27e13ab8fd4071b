// What is not warden's: the adapters take it as structs of their own with these very fields.

package facts

import "time"

// GateStats are what is shown of an admission gate.
type GateStats struct {
	Limit, InFlight          int
	Admitted, Released       uint64
	Rejected, RejectedClosed uint64
	ObserverPanics           uint64
}

// LedgerStats are what is shown of a ledger of leases.
type LedgerStats struct {
	Held       int           // domains under lease
	OldestHeld time.Duration // age of the oldest lease; 0: there is none
	Ready      int           // domains without a lease in which something waits
}

// Dispatcher says how to ask for the partitions of one process, and how many there are for its whole group; less than 1: unknown.
type Dispatcher struct {
	Stats      func() []DispatcherStats
	Partitions int
}

// DispatcherStats are what is shown of one partition.
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

// ReadGate says what a gate has counted.
func ReadGate(p Put, name string, s GateStats) {
	p("stopbank_admission_limit", float64(s.Limit), name)
	p("stopbank_admission_in_flight", float64(s.InFlight), name)
	p("stopbank_admission_admitted_total", float64(s.Admitted), name)
	p("stopbank_admission_released_total", float64(s.Released), name)
	p("stopbank_admission_rejected_total", float64(s.Rejected-min(s.Rejected, s.RejectedClosed)), name, "saturated")
	p("stopbank_admission_rejected_total", float64(s.RejectedClosed), name, "closed")
	p("stopbank_admission_observer_panics_total", float64(s.ObserverPanics), name)
}

// ReadLedger says what a ledger of leases has counted.
func ReadLedger(p Put, name string, s LedgerStats) {
	p("stopbank_lease_held", float64(s.Held), name)
	p("stopbank_lease_oldest_held_seconds", s.OldestHeld.Seconds(), name)
	p("stopbank_lease_ready", float64(s.Ready), name)
}

// ReadDispatcher says which partitions a dispatcher of leased work has, and what was counted in each.
func ReadDispatcher(p Put, name string, d Dispatcher) {
	held := 0
	for _, s := range d.Stats() {
		if s.Held {
			held++
		}
		readPartition(p, name, s)
	}
	p("stopbank_dispatch_partitions_held", float64(held), name)
	if d.Partitions > 0 {
		p("stopbank_dispatch_partitions", float64(d.Partitions), name)
	}
}

// readPartition shows one partition. Before it is taken it has no floor, and a 0 would be one.
func readPartition(p Put, name string, s DispatcherStats) {
	show := func(metric string, v float64, labels ...string) {
		p("stopbank_dispatch_"+metric, v, append([]string{name, s.Name}, labels...)...)
	}
	for state, n := range map[string]int{"working": s.Working, "ready": s.Ready, "pausing": s.Pausing, "waiting": s.Waiting, "fenced": s.Fenced} {
		show("domains", float64(n), state)
	}
	show("suspects", float64(s.Suspects))
	show("paced", float64(s.Paced))
	show("buffered", float64(s.Buffered))
	show("oldest_buffered_seconds", s.Oldest.Seconds())
	show("paused", truth(s.Paused))
	for result, n := range map[string]uint64{"succeeded": s.Succeeded, "skipped": s.Skipped} {
		show("records_total", float64(n), result)
	}
	retried := s.GaveUp - min(s.GaveUp, s.Permanent+s.Died)
	for cause, n := range map[string]uint64{"retries": retried, "permanent": s.Permanent, "died": s.Died} {
		show("given_up_total", float64(n), cause)
	}
	show("dead_letters_total", float64(s.DeadLettered))
	show("dead_letter_failures_total", float64(s.DeadLetterFailed))
	show("retries_total", float64(s.Retried))
	show("postponed_total", float64(s.Postponed))
	show("reclaimed_total", float64(s.Reclaimed))
	show("lost_total", float64(s.Lost))
	if s.Held {
		show("floor_offset", float64(s.Floor))
		show("committed_offset", float64(s.Committed))
		if s.Lag >= 0 {
			show("lag_offsets", float64(s.Lag))
		}
	}
	show("observer_panics_total", float64(s.ObserverPanics))
}
