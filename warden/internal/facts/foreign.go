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

// DispatcherStats are what is shown of a dispatcher of leased work.
type DispatcherStats struct {
	Working, Ready, Pausing, Waiting, Fenced int
	Buffered                                 int
	Oldest                                   time.Duration
	Paused                                   bool
	Succeeded, Skipped, GaveUp               uint64
	DeadLettered, Retried, Reclaimed, Lost   uint64
	ObserverPanics                           uint64
	Floor, Committed                         int64
	Lag                                      int64 // less than 0: unknown
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

// ReadDispatcher says what a dispatcher of leased work has counted.
func ReadDispatcher(p Put, name string, s DispatcherStats) {
	for state, n := range map[string]int{"working": s.Working, "ready": s.Ready, "pausing": s.Pausing, "waiting": s.Waiting, "fenced": s.Fenced} {
		p("stopbank_dispatch_domains", float64(n), name, state)
	}
	p("stopbank_dispatch_buffered", float64(s.Buffered), name)
	p("stopbank_dispatch_oldest_buffered_seconds", s.Oldest.Seconds(), name)
	p("stopbank_dispatch_paused", truth(s.Paused), name)
	for result, n := range map[string]uint64{"succeeded": s.Succeeded, "skipped": s.Skipped, "gave_up": s.GaveUp} {
		p("stopbank_dispatch_records_total", float64(n), name, result)
	}
	p("stopbank_dispatch_retries_total", float64(s.Retried), name)
	p("stopbank_dispatch_dead_letters_total", float64(s.DeadLettered), name)
	p("stopbank_dispatch_reclaimed_total", float64(s.Reclaimed), name)
	p("stopbank_dispatch_lost_total", float64(s.Lost), name)
	p("stopbank_dispatch_floor_offset", float64(s.Floor), name)
	p("stopbank_dispatch_committed_offset", float64(s.Committed), name)
	if s.Lag >= 0 {
		p("stopbank_dispatch_lag_offsets", float64(s.Lag), name)
	}
	p("stopbank_dispatch_observer_panics_total", float64(s.ObserverPanics), name)
}
