package dispatch

// This file says how far a dispatcher is.

import (
	"log/slog"
	"time"
)

// Stats are a dispatcher's counters and what it holds at one moment.
type Stats struct {
	Name string
	// Held: the partition has been taken, and Run has not given it back.
	Held bool

	// Domains with unfinished work, by where they are: a handler or the ledger is at work; ready to go on when there is a free slot; waiting
	// for a retry, or for a ledger or a receiver of dead letters that refused; waiting for their record to be read; left to somebody
	// else. Behind counts those of any state of which records have been put off, Suspects those that wait for their trial or are on it, Paced those that are
	// ready or pausing because of a rate.
	Working, Ready, Pausing, Waiting, Fenced, Behind, Suspects, Paced int

	Buffered int           // records fetched and not done
	Oldest   time.Duration // since the oldest of them was fetched; 0: there is none
	Paused   bool          // fetching waits for room

	// Counted since Run: records done by success, and found done when they were fetched; records given up, of them Permanent by ErrPermanent and Died
	// with their process; dead letters that were accepted, and attempts at one that were not; failures that led to a retry, and answers with
	// Later; leases taken from somebody else; domains lost to somebody else.
	Succeeded, Skipped, GaveUp, Permanent, Died, DeadLettered, DeadLetterFailed, Retried, Postponed, Reclaimed, Lost uint64
	// ObserverPanics counts panics of the Observer that were contained.
	ObserverPanics uint64

	// Floor is the lowest offset that may not be done, Committed what the Source was told of it, Next the first that
	// was never read. All are 0 until the partition is taken.
	Floor, Committed, Next int64
	// Lag is the end of the Source as of the last look minus Floor: in offsets, gaps included. -1: the Source does not say.
	Lag int64
}

// counters are the part of Stats that is counted. Guarded by Dispatcher.mu.
type counters struct {
	succeeded, skipped, gaveUp, permanent, died, deadLettered, deadLetterFailed, retried, postponed, reclaimed, lost, panics uint64
}

// Stats reads the counters. Its time grows with the domains that have work; it allocates nothing.
func (d *Dispatcher) Stats() Stats {
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
			s.Pausing++
		case inactive:
			s.Fenced++
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

// LogValue implements slog.LogValuer: one group, without what is zero and says nothing.
func (s Stats) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, 28)
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
