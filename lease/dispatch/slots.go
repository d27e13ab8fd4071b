package dispatch

// This file hands out the slots of MaxInFlight to partitions (D9) and owners (D11), at the Rate of all of them (D10).

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// slots are the MaxInFlight of all partitions together; a Dispatcher alone has its own. They go from hand to hand: one that falls free goes to the first of the
// lines that wait, and its partition picks the record. Where there is a rate of all, a slot goes out only when the rate has answered for the one
// before it, so that what it lets go is what is first at that time.
type slots struct {
	most    int
	rated   bool
	longest float64 // AttemptTimeout, in seconds: what a record is charged, and what an owner may be ahead of now, at most

	mu      sync.Mutex // guards all below, the lines and the shares; nothing foreign runs under it. Taken inside a Dispatcher's, never around it
	taken   int
	waiting []*line
	owners  map[string]*share
	sweepAt int // so many owners are looked through for those that can be forgotten
	turn    uint64
	now     float64     // virtual time, in seconds: what the least of the owners that wait has used. It never falls
	asking  bool        // the rate is being called
	shut    *time.Timer // until it fires, the rate allows no attempt; nil: it may
}

// share is an owner's or a partition's part of the slots.
type share struct {
	has   int
	late  int // of has: with handlers that are over their time. They are lost to everybody alike, and do not count where the fewest is asked for
	lines int // of an owner: that there are
	wait  int // of the lines: those that wait
	// used is the time for which an owner has held slots, in seconds: a thousand slots would fill a Duration in four months. Who had
	// nothing to do comes back with now at least: idling saves nothing up.
	used float64
}

// line is one owner's place in the queue for slots, for one partition.
type line struct {
	*slots
	of               *owner
	owner, partition *share
	since            uint64 // the turn in which it began to wait; 0: it does not
	lastTurn         uint64 // since, of the slot that it got last
	exempt           bool   // it waits with something that needs no rate
	unrated          int    // slots for which the rate has not answered yet
	// wake uses a slot. It is called under the lock, so it must neither block nor call back.
	wake func()
}

func newSlots(cfg Config) *slots {
	return &slots{most: cfg.MaxInFlight, rated: cfg.Rate != nil, longest: cfg.AttemptTimeout.Seconds(), owners: map[string]*share{}}
}

// join returns a new line of owner.
func (p *slots) join(owner string, partition *share) *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.owners[owner]
	if s == nil {
		p.sweep()
		s = &share{}
		p.owners[owner] = s
	}
	s.lines++
	return &line{slots: p, owner: s, partition: partition}
}

// leave ends a line. A slot that it has it still has, until it gives it back.
func (l *line) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dequeue()
	l.owner.lines--
	l.pass()
}

// sweep forgets owners who have nothing to do and have used no more than the others, from time to time. If there are many of the rest, those too.
// The lock is held.
func (p *slots) sweep() {
	const idlers = 1024
	if len(p.owners) < p.sweepAt {
		return
	}
	idle := 0
	for name, s := range p.owners {
		if s.lines > 0 || s.has > 0 {
			continue
		}
		if idle++; idle > idlers || s.used <= p.now {
			delete(p.owners, name)
		}
	}
	p.sweepAt = max(idlers, 2*len(p.owners))
}

func (s *share) onTime() int { return s.has - s.late }

// compare says which line is first: that of the owner who has the fewest slots, of those the one who has used the least; of his, that of the partition that
// has the fewest, of those the one that has waited longest.
func (l *line) compare(other *line) int {
	return cmp.Or(
		cmp.Compare(l.owner.onTime(), other.owner.onTime()), cmp.Compare(l.owner.used, other.owner.used),
		cmp.Compare(l.partition.onTime(), other.partition.onTime()), cmp.Compare(l.since, other.since))
}

// request has l wait for a slot; exempt says that it needs no rate.
func (l *line) request(exempt bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.exempt = exempt
	if l.since == 0 {
		l.turn++
		l.queue(l.turn)
	}
	l.pass()
}

// queue puts l among those that wait, since that turn. The lock is held.
func (l *line) queue(since uint64) {
	if l.since == 0 {
		if l.owner.wait == 0 && l.owner.has == 0 {
			l.owner.used = max(l.owner.used, l.now)
		}
		l.owner.wait++
		l.waiting = append(l.waiting, l)
	}
	l.since = since
}

// dequeue takes l out of those that wait. The lock is held.
func (l *line) dequeue() {
	if l.since == 0 {
		return
	}
	l.since = 0
	l.owner.wait--
	i := slices.Index(l.waiting, l)
	last := len(l.waiting) - 1
	l.waiting[i] = l.waiting[last]
	l.waiting[last] = nil
	l.waiting = l.waiting[:last]
}

// grant gives the first of the lines that wait a slot, if there is one and somebody may have it. The lock is held.
func (p *slots) grant() *line {
	if p.taken >= p.most {
		return nil
	}
	var first *line
	for _, l := range p.waiting {
		if (l.exempt || !p.asking && p.shut == nil) && (first == nil || l.compare(first) < 0) {
			first = l
		}
	}
	if first == nil {
		return nil
	}
	least := first.owner.used
	for _, l := range p.waiting {
		least = min(least, l.owner.used)
	}
	p.now = max(p.now, least)
	first.lastTurn = first.since
	first.dequeue()
	first.owner.has++
	first.partition.has++
	p.taken++
	if p.rated && !first.exempt {
		p.asking = true
		first.unrated++
	}
	return first
}

// pass wakes those for whom there is a slot. The lock is held.
func (p *slots) pass() {
	for l := p.grant(); l != nil; l = p.grant() {
		l.wake()
	}
}

// give gives a slot back that was used for so long. If the next one goes to the same partition, it returns whose it is, and does not wake it.
func (l *line) give(used time.Duration) (next *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owner.has--
	l.partition.has--
	l.taken--
	l.owner.used = min(l.owner.used+min(used.Seconds(), l.longest), l.now+l.longest)
	if next = l.grant(); next != nil && next.partition != l.partition {
		next.wake()
		next = nil
	}
	l.pass()
	return next
}

// answered is called once for each slot, when the rates have answered: no attempt that needs the rate of all starts before wait is over.
// A line whose attempt was rejected, by this rate or its own, keeps its place in the queue.
func (l *line) answered(rejected bool, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if rejected && l.since > 0 {
		l.since = min(l.since, l.lastTurn)
	}
	if l.unrated > 0 {
		l.unrated--
		l.asking = false
	}
	if wait > 0 && l.shut == nil {
		l.shut = time.AfterFunc(wait, l.reopen)
	}
	l.pass()
}

// reopen lets the rate be asked again.
func (p *slots) reopen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = nil
	p.pass()
}

// closed: the rate of all lets nobody go.
func (p *slots) closed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shut != nil
}

// countOverdue counts n more handlers that are over their time, and go on.
func (l *line) countOverdue(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owner.late += n
	l.partition.late += n
}
