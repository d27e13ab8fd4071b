// What is not warden's. This module does not import it: the adapters do, and their structs are read by the names of their fields.

package facts

import (
	"reflect"
	"time"
)

// GateStats are those fields of admission.Stats that are shown.
type GateStats struct {
	Limit, InFlight          int
	Admitted, Released       uint64
	Rejected, RejectedClosed uint64
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

// DispatcherStats are those fields of dispatch.Stats that are shown.
type DispatcherStats struct {
	Name string // the partition's; may be empty
	Held bool   // it has been taken

	Working, Ready, Pausing, Waiting, Fenced, Suspects, Paced int

	Buffered int
	Oldest   time.Duration
	Paused   bool
	Stalled  string // why it does not go on; empty: it does

	Succeeded, Skipped, GaveUp, Permanent, Died, DeadLettered, DeadLetterFailed, Retried, Postponed, Reclaimed, Lost uint64

	ObserverPanics   uint64
	Floor, Committed int64
	Lag              int64 // less than 0: unknown
}

// Gates takes an adapter's description of gates. A nil function stays one, to be found by Build; so below.
func Gates[G ~struct{ Stats func() S }, S any](of map[string]G) map[string]func() GateStats {
	all := map[string]func() GateStats{}
	for name, g := range of {
		all[name] = nil
		if stats := (struct{ Stats func() S })(g).Stats; stats != nil {
			all[name] = func() GateStats { return fields[GateStats](stats()) }
		}
	}
	return all
}

// Ledgers takes an adapter's description of ledgers.
func Ledgers[L ~struct{ Stats func() (S, error) }, S any](of map[string]L) map[string]func() (LedgerStats, error) {
	all := map[string]func() (LedgerStats, error){}
	for name, l := range of {
		all[name] = nil
		if stats := (struct{ Stats func() (S, error) })(l).Stats; stats != nil {
			all[name] = func() (LedgerStats, error) {
				s, err := stats()
				return fields[LedgerStats](s), err
			}
		}
	}
	return all
}

// Dispatchers takes an adapter's description of dispatchers.
func Dispatchers[D ~struct {
	Stats      func() []S
	Partitions int
}, S any](of map[string]D) map[string]Dispatcher {
	all := map[string]Dispatcher{}
	for name, d := range of {
		d := (struct {
			Stats      func() []S
			Partitions int
		})(d)
		shown := Dispatcher{Partitions: d.Partitions}
		if d.Stats != nil {
			shown.Stats = func() (each []DispatcherStats) {
				for _, s := range d.Stats() {
					each = append(each, fields[DispatcherStats](s))
				}
				return each
			}
		}
		all[name] = shown
	}
	return all
}

// fields copies fields by their names. A conversion would not compile beside a newer release, whose structs may have more of them.
func fields[To any](from any) (to To) {
	source, target := reflect.ValueOf(from), reflect.ValueOf(&to).Elem()
	for i := range target.NumField() {
		target.Field(i).Set(source.FieldByName(target.Type().Field(i).Name))
	}
	return to
}

// ReadGate says what a gate has counted.
func ReadGate(p Put, name string, s GateStats) {
	p("stopbank_admission_limit", float64(s.Limit), name)
	p("stopbank_admission_in_flight", float64(s.InFlight), name)
	p("stopbank_admission_admitted_total", float64(s.Admitted), name)
	p("stopbank_admission_released_total", float64(s.Released), name)
	p("stopbank_admission_rejected_total", float64(s.Rejected-min(s.Rejected, s.RejectedClosed)), name, "saturated")
	p("stopbank_admission_rejected_total", float64(s.RejectedClosed), name, "closed")
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
	if s.Stalled != "" {
		show("stalled", 1, s.Stalled)
	}
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
