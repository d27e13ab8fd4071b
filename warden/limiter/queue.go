// The queue: one list for each priority, and a bit for each list that is not empty.

package limiter

import (
	"math/bits"
	"time"
)

// A waiter is a task in the queue. From the instant it is taken out, whoever took it out owns it: a grant, a refusal or
// the task's own goroutine that gives up. All of that happens under Limiter.mu, so there is exactly one.
type waiter struct {
	links   [2]link // one pair for each set of lanes
	task    Task
	due     time.Duration
	since   time.Duration
	number  uint64 // in order of arrival
	inQueue bool
	spared  bool // exempt from eviction

	// outcome is written by whoever takes the waiter out, before it sends to ready, and read by the task's goroutine
	// after it has received: one value is sent for each waiter that was taken out by somebody else.
	outcome verdict
	ready   chan struct{}

	timer *time.Timer // used by the task's goroutine alone; nil until a deadline needs one
}

type link struct{ older, newer *waiter }

// lanes are 256 lists, oldest to newest, that a waiter enters, leaves and is found in at a cost that depends on nothing.
type lanes struct {
	which int // of waiter.links
	lane  [256]struct {
		oldest, newest *waiter
		waiting        int
	}
	present [4]uint64 // a bit for each lane that is not empty
}

func laneOf(p Priority) int { return int(p) + 128 }

func (s *lanes) push(w *waiter) {
	i := laneOf(w.task.Priority)
	l := &s.lane[i]
	l.waiting++
	w.links[s.which] = link{older: l.newest}
	if l.newest == nil {
		l.oldest = w
		s.present[i/64] |= 1 << (i % 64)
	} else {
		l.newest.links[s.which].newer = w
	}
	l.newest = w
}

func (s *lanes) remove(w *waiter) {
	i := laneOf(w.task.Priority)
	l, at := &s.lane[i], w.links[s.which]
	l.waiting--
	if at.older == nil {
		l.oldest = at.newer
	} else {
		at.older.links[s.which].newer = at.newer
	}
	if at.newer == nil {
		l.newest = at.older
	} else {
		at.newer.links[s.which].older = at.older
	}
	if l.oldest == nil {
		s.present[i/64] &^= 1 << (i % 64)
	}
	w.links[s.which] = link{}
}

// first is the lane of the highest priority that has a waiter, -1 if none has.
func (s *lanes) first() int {
	for i := len(s.present) - 1; i >= 0; i-- {
		if b := s.present[i]; b != 0 {
			return i*64 + bits.Len64(b) - 1
		}
	}
	return -1
}

// last is the lane of the lowest priority that has a waiter, -1 if none has.
func (s *lanes) last() int {
	for i, b := range s.present {
		if b != 0 {
			return i*64 + bits.TrailingZeros64(b)
		}
	}
	return -1
}

// from is how many wait in lane i and above. It looks at 256 lanes at most, however many wait.
func (s *lanes) from(i int) (waiting int) {
	for k := i / 64; k < len(s.present); k++ {
		b := s.present[k]
		if k == i/64 {
			b &= ^uint64(0) << (i % 64)
		}
		for ; b != 0; b &= b - 1 {
			waiting += s.lane[k*64+bits.TrailingZeros64(b)].waiting
		}
	}
	return waiting
}

// queue holds the waiters. All of it is guarded by Limiter.mu.
type queue struct {
	all     lanes
	mortal  *lanes // those that may be evicted; nil: all may
	waiting int
	spared  int // waiters that may not be evicted
	numbers uint64

	patience time.Duration // Config.StandAfter
	arrears  arrears       // of the priorities
	last     time.Duration // when a place was granted last
	gap      time.Duration // between two grants, smoothed, at most fresh

	every  int // Config.StarvationEvery
	turns  int // grants since the last one that went to the oldest waiter
	denied int // refusals since the last one that was spared
}

func newQueue(every int, patience time.Duration) *queue {
	q := &queue{every: every, patience: patience}
	if every > 0 {
		q.mortal = &lanes{which: 1}
	}
	return q
}

func (q *queue) push(w *waiter) {
	q.numbers++
	w.number, w.inQueue = q.numbers, true
	q.waiting++
	q.all.push(w)
	switch {
	case w.spared:
		q.spared++
	case q.mortal != nil:
		q.mortal.push(w)
	}
}

func (q *queue) remove(w *waiter) {
	w.inQueue = false
	q.waiting--
	q.all.remove(w)
	switch {
	case w.spared:
		q.spared--
	case q.mortal != nil:
		q.mortal.remove(w)
	}
}

// next is whose turn it is, in a queue that is not empty: the highest priority; in it the oldest, or the newest if it is
// behind and the oldest has waited too long. At most one grant in q.every goes to the oldest of all instead.
func (q *queue) next(now time.Duration) (*waiter, Grant) {
	if q.every > 0 && q.turns+1 >= q.every {
		return q.oldest(), StarvationTurn
	}
	i := q.all.first()
	l := &q.all.lane[i]
	if room, behind := q.behind(i, now); behind && now-l.oldest.since > room {
		return l.newest, QueueNewest
	}
	return l.oldest, QueueOldest
}

// granted counts a grant of next.
func (q *queue) granted(w *waiter, how Grant, now time.Duration) {
	q.gap += (min(now-q.last, fresh) - q.gap) / 8
	q.last = now
	if how != StarvationTurn {
		q.arrears.clearAbove(laneOf(w.task.Priority))
	}
	q.turns++
	if how == StarvationTurn {
		q.turns = 0
	}
}

// oldest looks at the head of each lane: 256 at most, however many wait.
func (q *queue) oldest() (oldest *waiter) {
	for i, b := range q.all.present {
		for ; b != 0; b &= b - 1 {
			if w := q.all.lane[i*64+bits.TrailingZeros64(b)].oldest; oldest == nil || w.number < oldest.number {
				oldest = w
			}
		}
	}
	return oldest
}

// victim is the youngest of the lowest priority among those that may be evicted, nil if there is none.
func (q *queue) victim() *waiter {
	s := q.mortal
	if s == nil {
		s = &q.all
	}
	if i := s.last(); i >= 0 {
		return s.lane[i].newest
	}
	return nil
}

// mercy is whether a task that is about to be refused shall be spared: one in q.every, as long as the spared take no
// more than that share of a queue of limit places.
func (q *queue) mercy(limit int) bool {
	if q.every == 0 {
		return false
	}
	q.denied++
	if q.denied < q.every || q.spared >= max(1, limit/q.every) {
		return false
	}
	q.denied = 0
	return true
}

// spare exempts a waiter from eviction.
func (q *queue) spare(w *waiter) {
	q.mortal.remove(w)
	w.spared = true
	q.spared++
}
