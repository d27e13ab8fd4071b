// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file watches whether a partition makes progress, and names the reason if it does not (D12).

import "time"

// progress is the progress that a partition has made. Two that are equal say that nothing ended in between.
type progress struct {
	ended    uint64
	position int64
}

// progressLocked returns the progress made so far. A read counts only where reads are what the partition waits for: records that
// arrive must not hide that none ends.
func (d *Dispatcher) progressLocked(reason string) progress {
	p := progress{}
	for kind, n := range d.count {
		if kind != "" && kind != LedgerError && kind != Foreign { // "": no event
			p.ended += n
		}
	}
	if reason == "taking" || reason == "reading" {
		p.position = d.position
	}
	return p
}

// watchForStalls looks once in AttemptTimeout, in which a handler ends, until the drain begins.
func (d *Dispatcher) watchForStalls() {
	tick := time.NewTicker(d.cfg.AttemptTimeout)
	defer tick.Stop()
	for before := ""; ; { // the reason of the last look; "": nothing waited
		select {
		case <-d.runCtx.Done():
			return
		case <-tick.C:
		}
		d.mu.Lock()
		reason := d.stallReasonLocked() // which may change while nothing ends
		now := d.progressLocked(reason)
		if d.stallReason = ""; before != "" && now == d.lastProgress || reason == "rewound" {
			d.stallReason = reason
		}
		d.lastProgress, before = now, reason
		e := d.stalledLocked(d.stallReason)
		d.mu.Unlock()
		if e.Reason != "" {
			d.observe(e)
		}
	}
}

// stalledLocked returns the event of a stall.
func (d *Dispatcher) stalledLocked(reason string) Event {
	e := Event{Kind: Stalled, Offset: d.floorLocked(), Reason: reason}
	if reason == "rewound" {
		e.Err = d.rewound
	}
	return e
}

// stallReasonLocked returns what the waiting records wait for; "" if there are none.
func (d *Dispatcher) stallReasonLocked() string {
	switch {
	case d.rewound != nil:
		return "rewound"
	case d.partition.Open != nil:
		return "unopened"
	case !d.taken:
		return "taking"
	}
	places := map[place]int{}
	foreign := 0
	for _, dom := range d.domains {
		places[dom.place]++
		if dom.place == pausing && dom.fencedOff() {
			foreign++
		}
	}
	held, none := d.slots.availability(&d.account)
	switch {
	case places[working] > 0 || held > 0: // a slot that was just granted has no domain yet
		return "working"
	case foreign > 0:
		return "fenced"
	case places[pausing]+places[paced] > 0:
		return "pausing"
	case places[ready] > 0 && (d.onTrial != nil || d.trialElsewhere || none):
		return "slots"
	case places[ready] > 0:
		return "unknown"
	case places[idle] > 0, d.floors.end.set && d.floors.end.offset > d.position:
		return "reading"
	}
	return ""
}
