package dispatch

// This file has a dispatcher's counters and gauges.

import (
	"log/slog"
	"time"
)

// Stats are a dispatcher's counters and gauges at one moment.
type Stats struct {
	Name string
	// Held: the partition has been taken, and Run has not given it back.
	Held bool

	// Domains with unfinished work. Working: in a handler or a call of the ledger. Ready: waiting for a slot. Pausing:
	// waiting for a retry, or after an error of the ledger or of DeadLetter. Waiting: their record has to be read first.
	// Fenced: another process has the lease, and has Grace, or the Source does not say whose the partition is. Domains in any of these states may also be Behind (records were put off),
	// Suspects (waiting for their trial or on it) or Paced (ready or pausing because of a rate).
	Working, Ready, Pausing, Waiting, Fenced, Behind, Suspects, Paced int

	Buffered int           // records fetched and not done
	Oldest   time.Duration // time since the oldest of them was fetched; 0: none
	Paused   bool          // fetching waits for room
	Stalled  string        // the Reason of the last StallError; "" since something has ended

	// Counters since Run. Succeeded: records done. Skipped: records found done when they were fetched. GaveUp: records
	// given up; of these, Permanent by ErrPermanent and Died with their process. DeadLettered: dead letters accepted;
	// DeadLetterFailed: attempts rejected. Retried: failures that led to a retry. Postponed: answers with Later.
	// Reclaimed: leases taken from a former holder. Lost: domains lost to another process.
	Succeeded, Skipped, GaveUp, Permanent, Died, DeadLettered, DeadLetterFailed, Retried, Postponed, Reclaimed, Lost uint64
	// ObserverPanics counts panics of the Observer that were contained.
	ObserverPanics uint64

	// Floor is the lowest offset that may not be done, Committed the last floor that the Source accepted, Next the first
	// offset never read. All are 0 until the partition is taken.
	Floor, Committed, Next int64
	// Lag is the Source's end when it was last asked minus Floor: in offsets, gaps included. -1: the Source does not
	// know its end.
	Lag int64
}

// counters are the part of Stats that is counted. Guarded by Dispatcher.mu.
type counters struct {
	succeeded, skipped, gaveUp, permanent, died, deadLettered, deadLetterFailed, retried, postponed, reclaimed, lost, panics uint64
}

func (d *Dispatcher) made() bool { return d != nil && d.wake != nil }

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
		Name: d.cfg.Name, Held: d.begun && !d.closed, Behind: d.behind, Buffered: d.buffered, Paused: d.paused, Lag: -1,
		Succeeded: c.succeeded, Skipped: c.skipped, GaveUp: c.gaveUp, Permanent: c.permanent, Died: c.died,
		DeadLettered: c.deadLettered, DeadLetterFailed: c.deadLetterFailed, Retried: c.retried, Postponed: c.postponed,
		Reclaimed: c.reclaimed, Lost: c.lost, ObserverPanics: c.panics,
	}
	if d.stalled != "" && d.sight(d.stalled) == d.seen {
		s.Stalled = d.stalled
	}
	if d.trial != nil {
		s.Suspects++
	}
	shut := d.slots.closed()
	for _, dom := range d.domains {
		switch dom.state {
		case working:
			s.Working++
		case ready:
			s.Ready++
			if shut && dom.attempts() {
				s.Paced++
			}
		case pausing:
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
		if dom.state == pausing && dom.paced {
			s.Paced++
		}
		if dom.state != working && dom.suspect {
			s.Suspects++
		}
	}
	if d.begun {
		s.Floor, s.Committed, s.Next = d.floor(), d.where.committed, d.high
		if d.where.endKnown {
			s.Lag = max(0, d.where.end-s.Floor)
		}
	}
	return s
}

// LogValue implements slog.LogValuer: one group. Domain counts and counters that are zero are left out.
func (s Stats) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, 29)
	if s.Name != "" {
		attrs = append(attrs, slog.String("name", s.Name))
	}
	attrs = append(attrs, slog.Int64("floor", s.Floor), slog.Int64("committed", s.Committed), slog.Int64("next", s.Next))
	if s.Lag >= 0 {
		attrs = append(attrs, slog.Int64("lag", s.Lag))
	}
	attrs = append(attrs, slog.Int("buffered", s.Buffered), slog.Duration("oldest", s.Oldest))
	for _, n := range []struct {
		key   string
		value int
	}{
		{"working", s.Working}, {"ready", s.Ready}, {"pausing", s.Pausing}, {"waiting", s.Waiting}, {"fenced", s.Fenced}, {"behind", s.Behind},
		{"suspects", s.Suspects}, {"paced", s.Paced},
	} {
		if n.value != 0 {
			attrs = append(attrs, slog.Int(n.key, n.value))
		}
	}
	if s.Stalled != "" {
		attrs = append(attrs, slog.String("stalled", s.Stalled))
	}
	if s.Paused {
		attrs = append(attrs, slog.Bool("paused", true))
	}
	for _, n := range []struct {
		key   string
		value uint64
	}{
		{"succeeded", s.Succeeded}, {"skipped", s.Skipped}, {"gave_up", s.GaveUp}, {"permanent", s.Permanent}, {"died", s.Died},
		{"dead_lettered", s.DeadLettered}, {"dead_letter_failed", s.DeadLetterFailed}, {"retried", s.Retried}, {"postponed", s.Postponed},
		{"reclaimed", s.Reclaimed}, {"lost", s.Lost}, {"observer_panics", s.ObserverPanics},
	} {
		if n.value != 0 {
			attrs = append(attrs, slog.Uint64(n.key, n.value))
		}
	}
	return slog.GroupValue(attrs...)
}

// tally adds one to a counter.
func (d *Dispatcher) tally(counter *uint64) {
	d.mu.Lock()
	*counter++
	d.mu.Unlock()
}
