// Package queue is the waiting line of everything in warden that has places: of a limiter, of a compartment, of a tenant.
// It says who may wait, whose turn is next, and who must leave; its owner says when there is a place.
//
// A Queue has no lock. The owner's mutex guards it and its waiters; only [Waiter.Wait] is called without. Times are
// durations since an instant that the owner chose.
package queue

import (
	"slices"
	"time"
)

// Never is the deadline of a task that has none.
const Never = time.Duration(1<<63 - 1)

// Verdict is what became of a task that could not run at once.
type Verdict uint8

// The verdicts.
const (
	Waits       Verdict = iota // it is in the queue
	Oldest                     // granted: it was the oldest of the highest priority
	Newest                     // granted: it was the newest of the highest priority, whose queue stands
	LongestWait                // granted: it had waited longest of all
	Shed                       // refused: its whole priority lies in the share to be shed
	ShedInPart                 // refused: the share ends within its priority, and the draw fell on it
	Full                       // refused, or left: the queue is full of tasks that are no less important, or newer
	Evicted                    // left: the queue was full, and something more important came
	Late                       // left: it can no longer be done before its deadline
	Overstayed                 // left: it could no longer be done before those like it have left
	Gone                       // left: its context was canceled
	Verdicts
)

// Queue is who waits: one list for each priority, oldest to newest.
type Queue[T any] struct {
	// Limit is how many may wait.
	Limit int
	// Every N: one in N grants goes to whoever has waited longest, and one in N refusals is spared. 0: none.
	Every int
	// Left is told of each waiter that another one's arrival or grant takes out of the queue. It must call Wake.
	Left func(w *Waiter[T], why Verdict, now time.Duration)

	lanes   []*lane[T] // the highest priority first; made on demand, and kept
	waiting int
	spared  int // of them
	number  uint64
	turns   int // grants since the last one that went to the longest wait
	denied  int // refusals since the last one that was spared

	mix    float64 // sum over the lanes
	halved time.Duration
}

// A lane is what there is of one priority.
type lane[T any] struct {
	priority       int8
	oldest, newest *Waiter[T]
	waiting        int
	mix            float64 // how many of the recent arrivals that had to wait were of this priority
	learned        patience
}

// Rule is what the decision says that rules.
type Rule struct {
	// Expected is what a task is expected to take, and Burst how long a burst keeps tasks waiting.
	Expected, Burst time.Duration
	// Share is the part of all arrivals that is to be shed.
	Share float64
}

// Len is how many wait.
func (q *Queue[T]) Len() int { return q.waiting }

// Offer lets w wait, or says why it may not: Shed, ShedInPart or Full. draw, in [0, 1), decides within the priority at which
// the share to be shed ends. If w has no deadline, it gets the patience of those like it, if that is known.
func (q *Queue[T]) Offer(w *Waiter[T], now time.Duration, r Rule, draw float64) Verdict {
	w.Since, w.Patience, w.untold, w.spared = now, 0, w.Due == Never, false
	l := q.laneOf(w.Priority)
	v := q.shed(l, now, r, draw)
	if v != Waits && q.takeExemption() {
		w.spared, v = true, Waits
	}
	if v == Waits && q.waiting >= q.Limit && !q.makeRoom(l, w, now, r) {
		v = Full
	}
	if v == Waits {
		if w.untold {
			if p := l.patience(now, r); p > 0 {
				w.Patience, w.Due = p, now+p
			}
		}
		q.push(l, w)
	}
	return v
}

// Judge says what Offer would of a task of this priority that found so many in the queue: Shed, ShedInPart, Full or Waits. It
// counts the task, and looks at nobody who waits: nobody makes room, nobody is spared.
func (q *Queue[T]) Judge(priority int8, waiting int, now time.Duration, r Rule, draw float64) Verdict {
	v := q.shed(q.laneOf(priority), now, r, draw)
	if v == Waits && waiting >= q.Limit {
		v = Full
	}
	return v
}

// shed counts an arrival in l, and says whether it is of the share to be shed.
func (q *Queue[T]) shed(l *lane[T], now time.Duration, r Rule, draw float64) Verdict {
	q.count(l, now)
	switch cut, part := q.Cut(r.Share); {
	case l.priority < cut, l.priority == cut && part >= 1:
		return Shed
	case l.priority == cut && draw < part:
		return ShedInPart
	}
	return Waits
}

// Next takes out whose turn it is, and says by what right: the highest priority; in it the oldest, or the newest if its queue
// stands. One grant in Every goes to the longest wait instead. Those that have less time left than expected are told to
// leave. nil: nobody waits.
func (q *Queue[T]) Next(now time.Duration, r Rule) (*Waiter[T], Verdict) {
	for q.waiting > 0 {
		w, how := q.turn(now, r)
		if v := w.TooLate(nil, now, r.Expected); v != Waits {
			q.leave(w, v, now)
			continue
		}
		if q.turns++; how == LongestWait {
			q.turns = 0
		}
		q.Remove(w, how, now)
		return w, how
	}
	return nil, Waits
}

func (q *Queue[T]) turn(now time.Duration, r Rule) (*Waiter[T], Verdict) {
	if q.Every > 0 && q.turns+1 >= q.Every {
		return q.LongestWaiting(), LongestWait
	}
	for _, l := range q.lanes {
		switch {
		case l.waiting == 0:
		case q.stands(l, now, r):
			return l.newest, Newest
		default:
			return l.oldest, Oldest
		}
	}
	return nil, Waits
}

// LongestWaiting is who has waited longest of all, nil if nobody waits.
func (q *Queue[T]) LongestWaiting() (oldest *Waiter[T]) {
	for _, l := range q.lanes {
		if w := l.oldest; w != nil && (oldest == nil || w.number < oldest.number) {
			oldest = w
		}
	}
	return oldest
}

// Remove takes w, which waits, out of the queue, and says why. Whoever does so owns it, and is to Wake it, unless it is its own
// goroutine.
func (q *Queue[T]) Remove(w *Waiter[T], why Verdict, now time.Duration) {
	l := w.lane
	if w.untold {
		l.learned.ended(now-w.Since, why == Gone, now)
	}
	w.lane = nil
	q.waiting--
	l.waiting--
	if w.spared {
		q.spared--
	}
	if w.older == nil {
		l.oldest = w.newer
	} else {
		w.older.newer = w.newer
	}
	if w.newer == nil {
		l.newest = w.older
	} else {
		w.newer.older = w.older
	}
	w.older, w.newer = nil, nil
}

func (q *Queue[T]) push(l *lane[T], w *Waiter[T]) {
	q.number++
	w.number, w.lane, w.older = q.number, l, l.newest
	q.waiting++
	l.waiting++
	if w.spared {
		q.spared++
	}
	if l.newest == nil {
		l.oldest = w
	} else {
		l.newest.newer = w
	}
	l.newest = w
}

func (q *Queue[T]) leave(w *Waiter[T], why Verdict, now time.Duration) {
	q.Remove(w, why, now)
	q.Left(w, why, now)
}

// laneOf is the lane of a priority. There are as many as priorities were ever seen, 256 at most and usually a few.
func (q *Queue[T]) laneOf(priority int8) *lane[T] {
	at := len(q.lanes)
	for i, l := range q.lanes {
		if l.priority == priority {
			return l
		}
		if l.priority < priority {
			at = i
			break
		}
	}
	l := &lane[T]{priority: priority}
	q.lanes = slices.Insert(q.lanes, at, l)
	return l
}

// makeRoom evicts the youngest of the lowest priority from a full queue, if it is less important than w. Mercy may spare it,
// and then the next one is looked at; or, if it is w that would be refused, spare w, and then the youngest of the lowest
// goes whatever it is. If nobody is less important, and the queue of w's own lane stands, its oldest makes room.
func (q *Queue[T]) makeRoom(l *lane[T], w *Waiter[T], now time.Duration, r Rule) bool {
	victim := q.victim()
	goes := func() bool { return victim != nil && (w.spared || victim.Priority < w.Priority) }
	switch {
	case w.spared:
	case !goes() && l.oldest != nil && !l.oldest.spared && q.stands(l, now, r):
		q.leave(l.oldest, Full, now)
		return true
	case !goes():
		w.spared = q.takeExemption()
	case q.takeExemption():
		q.spare(victim)
		victim = q.victim()
	}
	if !goes() {
		return false
	}
	q.leave(victim, Evicted, now)
	return true
}

// victim is the youngest of the lowest priority among those not spared, nil if there is none.
func (q *Queue[T]) victim() *Waiter[T] {
	for _, l := range slices.Backward(q.lanes) {
		for w := l.newest; w != nil; w = w.older {
			if !w.spared {
				return w
			}
		}
	}
	return nil
}

// takeExemption counts a rejection that is about to be made, and reports whether the starvation rule exempts it: one in Every,
// as long as exempt tasks fill no more than that share of the queue.
func (q *Queue[T]) takeExemption() bool {
	if q.Every == 0 {
		return false
	}
	q.denied++
	if q.denied < q.Every || q.spared >= max(1, q.Limit/q.Every) {
		return false
	}
	q.denied = 0
	return true
}

func (q *Queue[T]) spare(w *Waiter[T]) {
	w.spared = true
	q.spared++
}
