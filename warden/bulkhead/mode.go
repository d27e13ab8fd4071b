// This file is the safety valves of a compartment: calls that start although there is no place for them, and what would have become of them.

package bulkhead

import (
	"math"
	"time"

	"github.com/stopbank/stopbank/warden/internal/queue"
	"github.com/stopbank/stopbank/warden/limiter"
)

// While a compartment does not enforce its bounds, a call takes a place if one is free, as ever, and starts without one if none is: it
// runs beyond the places, and takes nothing of what others have. When a call ends, one that runs beyond takes over its place.

// admits is whether a call of c may start at once. The caller holds Set.mu, as for all of this file.
func (s *Set) admits(c *Compartment) bool {
	return c.part.share.Mode != limiter.Enforce || s.free(c)
}

// enter takes a place for c, or starts a call beyond them.
func (s *Set) enter(c *Compartment) {
	if s.free(c) {
		s.take(c)
		return
	}
	c.beyond++
	c.part.beyond++
}

// bounded is how many calls of c its bounds count, and of p: under Enforce, those that still run beyond the places as well.
func (c *Compartment) bounded() int {
	if c.part.share.Mode != limiter.Enforce {
		return c.held
	}
	return c.held + c.beyond
}

func (p *part) bounded() int {
	if p.share.Mode != limiter.Enforce {
		return p.held
	}
	return p.held + p.beyond
}

// rehearse starts a call that finds no place, and in a dry run notes in o what would have become of it.
func (c *Compartment) rehearse(o *outcome, d deadline, now time.Duration, draw float64) limiter.Reason {
	p := c.part
	o.queued = max(0, c.beyond-c.unwanted)
	if p.share.Mode == limiter.DryRun {
		if o.would = named(c.judge(o.queued, d, now, draw), d.from); o.would != 0 {
			o.bound, o.limit = p.set.full(c)
			c.unwanted++
			p.counts.wouldReject[o.would]++
		}
	}
	p.set.enter(c)
	o.inFlight = c.held + c.beyond
	return o.would
}

// judge estimates whether a call for which there is no place would have been refused; 0: it would have got one in time. The calls
// beyond the places that would not have been refused are the queue. It is worked off by Little's law, with what calls usually take.
func (c *Compartment) judge(queued int, d deadline, now time.Duration, draw float64) limiter.Reason {
	p := c.part
	if c.queue.Limit == 0 {
		return limiter.QueueOverflow
	}
	if v := c.queue.Judge(int8(p.config.Criticality), queued, now, p.waitingRule(), draw); v != queue.Waits {
		return reasonOf(v)
	}
	wait := float64(p.window.usual) * float64(queued+1) / float64(max(1, p.share.Max))
	if queue.Missed(d.due, now, time.Duration(math.Min(wait, float64(queue.Never/2)))) {
		return limiter.DeadlineExceeded
	}
	return 0
}

// named is the reason of a call that would leave the queue for its deadline: a wait that was too long for the compartment is a timeout.
func named(why limiter.Reason, from limiter.DeadlineSource) limiter.Reason {
	if why == limiter.DeadlineExceeded && from >= limiter.FromMaxWait {
		return limiter.TimeoutQueued
	}
	return why
}

// giveBack ends what a call holds: its place, or its being one beyond them.
func (k *call) giveBack() {
	if k.would != 0 {
		k.c.unwanted--
	}
	k.part.set.give(k.c)
}

// A valve is a compartment and the mode that it has been put into.
type valve struct {
	compartment string
	mode        limiter.Mode
}

// changed are those whose mode is another one than before.
func changed(before, after []Share) (all []valve) {
	for i, sh := range after {
		if before[i].Mode != sh.Mode {
			all = append(all, valve{sh.Name, sh.Mode})
		}
	}
	return all
}

func (s *Set) tellModes(all []valve) {
	for _, v := range all {
		s.observe(Event{Kind: ModeChanged, Compartment: v.compartment, Mode: v.mode})
	}
}
