// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file has a dispatcher's counters and gauges.

import (
	"errors"
	"time"
)

// Stats are a dispatcher's counters and gauges at one moment.
type Stats struct {
	Name string
	// Held: the partition has been taken, and Run has not given it back.
	Held bool

	// Domains with unfinished work. Working: in a handler or a call of the ledger. Ready: waiting for a slot. Pausing:
	// waiting for a retry, or after an error of the ledger or of DeadLetter. Waiting: their record has to be read first.
	// Fenced: another process has the lease, and has Grace, or the Source does not say which process owns the partition.
	// Domains in any of these states may also be Suspects (waiting for their trial or on it) or Paced (ready or pausing
	// because of a rate).
	Working, Ready, Pausing, Waiting, Fenced, Suspects, Paced int

	Buffered int           // records fetched and not done
	Oldest   time.Duration // time since the oldest of them was fetched; 0: none
	Paused   bool          // fetching waits for room
	// Stalled is why records wait, or the partition cannot be taken, and nothing has ended for AttemptTimeout or more; ""
	// since something has ended. unopened: the partition is assigned, and Partition.Open fails or does not return. taking:
	// the Source or the ledger does not let the partition be taken. working: calls of Handler, Concurrency, DeadLetter or
	// the ledger have not returned. fenced: another process has the leases. pausing: records wait for a retry, an error to
	// pass, or RateOf's rate. slots: other partitions have all slots or the trial of suspects, or Rate admits no attempt.
	// reading: the Source returns nothing, though its log ends further on (its transactions hold it back, or nothing but gaps
	// is left) or the ledger has a record that it should have. rewound, at once and as long as it lasts: the log is another one
	// than the position and the ledger are about (ErrRewound), so that nothing is read and committed; what was read goes on.
	// unknown: none of these.
	Stalled string

	// Counters since Run. Succeeded: records done. Skipped: records found done when they were fetched. GaveUp: records
	// given up; of these, Permanent by ErrPermanent and Died with their process. DeadLettered: dead letters accepted;
	// DeadLetterFailed: attempts rejected. Retried: failures that led to a retry. Postponed: answers with Later.
	// Reclaimed: leases taken from a former holder. Lost: domains lost to another process.
	Succeeded, Skipped, GaveUp, Permanent, Died, DeadLettered, DeadLetterFailed, Retried, Postponed, Reclaimed, Lost uint64
	// ObserverPanics counts panics of the Observer that were contained.
	ObserverPanics uint64

	// Floor is the lowest offset that may not be done, Committed the last floor that the Source accepted. Both are 0 until
	// the partition is taken.
	Floor, Committed int64
	// Lag is the Source's end when it was last asked minus Floor: in offsets, gaps included. -1: the Source does not
	// know its end, or has not said it yet, or its log is rewound.
	Lag int64
}

func (d *Dispatcher) made() bool { return d != nil && d.wakeFetch != nil }

// Stats returns the current values, zero for a nil or zero Dispatcher. Its time grows with the number of domains that have
// work; it allocates nothing.
func (d *Dispatcher) Stats() Stats {
	if !d.made() {
		return Stats{}
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.count
	s := Stats{
		Name: d.partition.Name, Held: d.taken && !d.closed, Buffered: d.buffered, Paused: d.paused, Lag: -1,
		Succeeded: c[Succeeded], Skipped: c[Skipped], GaveUp: c[GaveUp], Permanent: d.permanent, Died: d.died,
		DeadLettered: c[DeadLettered], DeadLetterFailed: c[DeadLetterFailed], Retried: c[Retrying], Postponed: c[Postponed],
		Reclaimed: c[Reclaimed], Lost: c[Fenced], ObserverPanics: d.panics,
	}
	if d.rewound != nil {
		s.Stalled = "rewound"
	} else if d.stallReason != "" && d.progressLocked(d.stallReason) == d.lastProgress {
		s.Stalled = d.stallReason
	}
	if d.onTrial != nil {
		s.Suspects++
	}
	exhausted := d.slots.rateExhausted()
	for _, dom := range d.domains {
		switch dom.place {
		case working:
			s.Working++
		case ready:
			s.Ready++
			if exhausted && dom.next(d.momentLocked(dom, now)).attempt {
				s.Paced++
			}
		case pausing, paced:
			if dom.fencedOff() {
				s.Fenced++
			} else {
				s.Pausing++
			}
		case idle:
			s.Waiting++
		}
		if len(dom.queue) > 0 {
			s.Oldest = max(s.Oldest, now.Sub(dom.queue[0].since))
		}
		if dom.place == paced {
			s.Paced++
		}
		if dom.place != working && dom.tenure == suspect {
			s.Suspects++
		}
	}
	if d.taken {
		s.Floor, s.Committed = d.floorLocked(), d.floors.committed
		if d.floors.end.set && d.rewound == nil {
			s.Lag = max(0, d.floors.end.offset-s.Floor)
		}
	}
	return s
}

// countLocked counts an event of a domain.
func (d *Dispatcher) countLocked(e Event) {
	switch d.count[e.Kind]++; {
	case e.Kind == GaveUp && errors.Is(e.Err, ErrPermanent):
		d.permanent++
	case e.Kind == GaveUp && errors.Is(e.Err, ErrDied):
		d.died++
	}
}
