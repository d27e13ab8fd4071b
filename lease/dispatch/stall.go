package dispatch

// This file watches that a partition goes on, and says why it does not (D12).

import "time"

// sight is what there is to see of a partition. Two that are equal say that nothing ended in between.
type sight struct {
	count counters
	high  int64
}

// sight returns what there is to see now. To read on is progress only where that is what is waited for: records that come must not hide that none
// ends. The lock is held.
func (d *Dispatcher) sight(why string) sight {
	s := sight{count: d.count}
	if why == "taking" || why == "reading" {
		s.high = d.high
	}
	return s
}

// watch looks once in AttemptTimeout, in which a handler ends, until the drain begins.
func (d *Dispatcher) watch() {
	tick := time.NewTicker(d.cfg.AttemptTimeout)
	defer tick.Stop()
	for before := ""; ; { // the reason of the look before; "": nothing waited
		select {
		case <-d.soft.Done():
			return
		case <-tick.C:
		}
		d.mu.Lock()
		why := d.stuck() // which may change while nothing ends
		now := d.sight(why)
		if d.stalled = ""; before != "" && now == d.seen {
			d.stalled = why
		}
		d.seen, before = now, why
		e := Event{Kind: Stalled, Offset: d.floor(), Reason: d.stalled}
		d.mu.Unlock()
		if e.Reason != "" {
			d.observe(e)
		}
	}
}

// stuck is the reason for which what waits would not go on. The lock is held.
func (d *Dispatcher) stuck() string {
	switch {
	case d.open != nil:
		return "unopened"
	case !d.begun:
		return "taking"
	}
	states := map[runState]int{}
	foreign := 0
	for _, dom := range d.domains {
		states[dom.state]++
		if dom.state == pausing && dom.fencedOff() {
			foreign++
		}
	}
	has, none := d.slots.left(&d.share)
	switch {
	case states[working] > 0 || has > 0: // a slot that was just given has no domain yet
		return "working"
	case foreign > 0:
		return "fenced"
	case states[pausing] > 0:
		return "pausing"
	case states[ready] > 0 && (d.trial != nil || d.trialElsewhere || none):
		return "slots"
	case states[ready] > 0:
		return "unknown"
	case states[idle] > 0, d.where.endKnown && d.where.end > d.high:
		return "reading"
	}
	return ""
}

// fencedOff: another process has the lease, or may have it. The lock is held.
func (dom *domain) fencedOff() bool { return dom.foreign != 0 || dom.stage == fenced }

// left is how many slots a partition has, and whether no further one is to be had for now.
func (p *slots) left(partition *share) (has int, none bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return partition.has, p.taken >= p.most || p.shut != nil || p.asking
}
