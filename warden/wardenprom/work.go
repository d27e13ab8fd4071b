// SPDX-License-Identifier: Apache-2.0

// Values of gates, ledgers and dispatchers.

package wardenprom

import (
	"context"
	"time"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

func readGate(p put, g *admission.Gate) {
	s := g.Stats()
	p.value("stopbank_admission_limit", float64(s.Limit))
	p.value("stopbank_admission_in_flight", float64(s.InFlight))
	p.value("stopbank_admission_admitted_total", float64(s.Admitted))
	p.value("stopbank_admission_released_total", float64(s.Released))
	for reason, n := range map[string]uint64{"saturated": s.Rejected - s.RejectedClosed, "closed": s.RejectedClosed} {
		p.value("stopbank_admission_rejected_total", float64(n), reason)
	}
}

// readLedger counts leases in progress and keys that are ready. A lease released until its retry is due is neither.
func readLedger(ctx context.Context, p put, ledger lease.Ledger) error {
	held, ready := 0, 0
	var oldest time.Duration
	for l, err := range ledger.Held(ctx) {
		if err != nil {
			return err
		}
		if !l.Released {
			held++
			oldest = max(oldest, time.Since(l.AcquiredAt))
		}
	}
	for _, err := range ledger.Ready(ctx) {
		if err != nil {
			return err
		}
		ready++
	}
	p.value("stopbank_lease_held", float64(held))
	p.value("stopbank_lease_oldest_held_seconds", oldest.Seconds())
	p.value("stopbank_lease_ready", float64(ready))
	return nil
}

func readDispatcher(p put, partitions []dispatch.Stats) {
	held := 0
	for _, s := range partitions {
		if s.Held {
			held++
		}
		readPartition(p, s)
	}
	p.value("stopbank_dispatch_partitions_held", float64(held))
}

// readPartition exports no offset of a partition that is not taken: 0 would be one.
func readPartition(p put, s dispatch.Stats) {
	p = p.of("stopbank_dispatch_", s.Name)
	states := map[string]int{
		"working": s.Working, "ready": s.Ready, "pausing": s.Pausing, "waiting": s.Waiting, "fenced": s.Fenced,
	}
	for state, n := range states {
		p.value("domains", float64(n), state)
	}
	for metric, n := range map[string]int{"suspects": s.Suspects, "paced": s.Paced, "buffered": s.Buffered} {
		p.value(metric, float64(n))
	}
	p.value("oldest_buffered_seconds", s.Oldest.Seconds())
	p.value("paused", truth(s.Paused))
	if s.Stalled != "" {
		p.value("stalled", 1, s.Stalled)
	}
	for result, n := range map[string]uint64{"succeeded": s.Succeeded, "skipped": s.Skipped} {
		p.value("records_total", float64(n), result)
	}
	retried := s.GaveUp - min(s.GaveUp, s.Permanent+s.Died)
	for cause, n := range map[string]uint64{"retries": retried, "permanent": s.Permanent, "died": s.Died} {
		p.value("given_up_total", float64(n), cause)
	}
	for metric, n := range map[string]uint64{
		"dead_letters_total": s.DeadLettered, "dead_letter_failures_total": s.DeadLetterFailed,
		"retries_total": s.Retried, "postponed_total": s.Postponed, "reclaimed_total": s.Reclaimed, "lost_total": s.Lost,
		"observer_panics_total": s.ObserverPanics,
	} {
		p.value(metric, float64(n))
	}
	if s.Held {
		p.value("floor_offset", float64(s.Floor))
		p.value("committed_offset", float64(s.Committed))
		if s.Lag >= 0 {
			p.value("lag_offsets", float64(s.Lag))
		}
	}
}
