// SPDX-License-Identifier: Apache-2.0

// Package queue is the priority queue in front of the slots of a limiter, a compartment or a tenant. It decides which tasks
// may wait, which one is granted the next slot, and which ones have to leave; its owner says when a slot is free.
//
// A Queue has no lock. The owner's mutex guards it and its waiters; only [Waiter.Wait] is called without it. Times are
// durations since an instant that the owner chose.
package queue

import (
	"slices"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// Never is the deadline of a task without one.
const Never = time.Duration(1<<63 - 1)

// Result says what happened to a task: a queue gives all but Free, NoSlot and Closed, which are its owner's. It is what owners
// count by.
type Result uint8

// The results. Those from Shed to Closed reject the task, and those before Late for lack of a slot.
const (
	Waits       Result = iota // the task is in the queue
	Shed                      // rejected: all of its priority is shed
	ShedInPart                // rejected: a part of its priority is shed, at random
	Full                      // rejected, or left: the queue is full of tasks no less important, or newer
	NoSlot                    // rejected: no slot was free, and the task may not wait
	Evicted                   // left: the queue was full, and a more important task arrived
	Overstayed                // left: it waited as long as it may in a standing queue
	Late                      // rejected, or left: too little time until its deadline
	Gone                      // rejected, or left: its context was canceled
	Closed                    // rejected, or left: nothing starts any more
	Free                      // granted a slot without waiting
	Oldest                    // granted a slot: the oldest task of the highest priority
	Newest                    // granted a slot: the newest task of the highest priority, which has a standing queue
	LongestWait               // granted a slot: the task that had waited longest of all

	Rejections = Closed + 1 // how many there are, with Waits for none
)

// reasons and grants are the codes of the results.
//
//nolint:gochecknoglobals // nobody writes them
var (
	reasons = [...]decision.RejectionReason{
		Shed: decision.PressureHigh, ShedInPart: decision.ProbabilisticShedding, Full: decision.QueueOverflow, NoSlot: decision.NoSlot,
		Evicted: decision.PriorityDrop, Overstayed: decision.MaxWaitExceeded, Late: decision.DeadlineExceeded, Gone: decision.Canceled,
		Closed: decision.Closed, LongestWait: "",
	}
	grants = [...]decision.Grant{
		Free: "slot_free", Oldest: "queue_oldest", Newest: "queue_newest", LongestWait: "starvation_turn",
	}
)

// Reason returns the code of a rejection, else "".
func (r Result) Reason() decision.RejectionReason { return reasons[r] }

// Reasons returns the codes of all rejections.
func Reasons() []decision.RejectionReason { return slices.Clone(reasons[Waits+1 : Rejections]) }

// Grant returns the code of a grant, else "".
func (r Result) Grant() decision.Grant { return grants[r] }

// RejectedFor returns the result of a code, Waits if there is none.
func RejectedFor(code decision.RejectionReason) Result {
	return Result(max(0, slices.Index(reasons[:Rejections], code))) //nolint:gosec // less than Rejections
}

// Queue holds the waiting tasks: one list per priority, oldest to newest.
type Queue[T any] struct {
	// Limit is the maximum number of waiting tasks.
	Limit int
	// Every is N of the starvation rule: one grant in N goes to the longest wait, and one rejection in N is not made. 0: off.
	Every int
	// Others is as a tenant of all tasks that have none.
	Others Tenant
	// Left is called for each waiter that the arrival or the grant of another task removes. It must call Wake.
	Left func(w *Waiter[T], why Result, now time.Duration)

	lanes      []*lane[T] // the highest priority first; made on demand, and kept
	waiting    int
	exempt     int // of them
	number     uint64
	spare      []*group[T]
	turns      int // grants since the last one that went to the longest wait
	rejections int // rejections since the last one that was exempt

	mix    float64 // sum over the lanes
	halved time.Duration
}

// A lane is the queue of one priority.
type lane[T any] struct {
	priority       int8
	oldest, newest *Waiter[T]
	waiting        int
	plain          group[T] // those without a tenant
	groups         groups[T]
	mix            float64       // recent arrivals of this priority that had to wait
	since          time.Duration // when it was last empty
}

// Rule is the part of the decision in force that the queue follows.
type Rule struct {
	// Expected is the expected execution time, and Burst the longest queue wait that a mere burst causes.
	Expected, Burst time.Duration
	// MaxWait bounds the wait of tasks without a deadline; 0: nothing does.
	MaxWait time.Duration
	// Needs is what work of a name takes at least, see Waiter.Need; of a name that is not there nothing is known.
	Needs map[string]time.Duration
	// Share is the fraction of queueing tasks to shed.
	Share float64
	// Slots is how many slots there are, and Weights the sum of the weights of the tenants that are not idle; 0: there are no tenants.
	Slots, Weights int
}

// Len returns the number of waiting tasks.
func (q *Queue[T]) Len() int { return q.waiting }

// Offer appends w to the queue, or returns why not: Shed, ShedInPart or Full. draw, in [0, 1), decides for tasks of the
// priority that is shed in part. If w has no deadline and is not Patient, the rule bounds its wait.
func (q *Queue[T]) Offer(w *Waiter[T], now time.Duration, r Rule, draw float64) Result {
	w.Since, w.MaxWait, w.later, w.exempt = now, 0, 0, false
	l := q.laneOf(w.Priority)
	v := q.shed(l, q.waiting, now, r, draw)
	if v != Waits && q.takeExemption() {
		w.exempt, v = true, Waits
	}
	if v == Shed || v == ShedInPart {
		if x := q.instead(l, w, v, now, r); x != nil {
			q.leave(x, Shed, now)
			v = Waits
		}
	}
	if v == Waits && q.waiting >= q.Limit && !q.makeRoom(l, w, now, r) {
		v = Full
	}
	if v == Waits {
		if w.Due == Never && !w.Patient {
			w.MaxWait = r.Early()
			if q.stands(l, now, r) {
				w.MaxWait = MaxWait(now-l.since, r)
			}
		}
		q.push(l, w)
	}
	return v
}

// instead returns who is shed in place of w: one that is less important, or whose tenant has more waiting.
func (q *Queue[T]) instead(l *lane[T], w *Waiter[T], v Result, now time.Duration, r Rule) *Waiter[T] {
	if x := q.victim(); v == ShedInPart && x != nil && x.Priority < w.Priority {
		return x
	}
	return q.crowded(l, w, now, r)
}

// Evaluate returns what Offer would for a task of this priority behind that many waiting tasks: Shed, ShedInPart, Full or
// Waits. It counts the arrival and changes nothing else: no task makes room, and none is exempt.
func (q *Queue[T]) Evaluate(priority int8, waiting int, now time.Duration, r Rule, draw float64) Result {
	v := q.shed(q.laneOf(priority), waiting, now, r, draw)
	if v == Waits && waiting >= q.Limit {
		v = Full
	}
	return v
}

// shed counts an arrival in l, behind that many waiting tasks, and returns Shed or ShedInPart if it is to be shed, else Waits. No
// draw sheds where nobody waits, because there is room; nor critical tasks of a burst, because those who were less important just
// started.
func (q *Queue[T]) shed(l *lane[T], waiting int, now time.Duration, r Rule, draw float64) Result {
	q.count(l, now)
	switch cut, part := q.Cut(r.Share); {
	case l.priority < cut, l.priority == cut && part >= 1:
		return Shed
	case l.priority > cut, draw >= part, waiting == 0, l.priority == highest && !q.stands(l, now, r):
		return Waits
	}
	return ShedInPart
}

// Next removes and returns the task to start next, and why: the oldest of the highest priority, or its newest in a standing
// queue. One grant in Every goes to the longest wait instead. Tasks with less time left than they need leave. nil: none waits.
func (q *Queue[T]) Next(now time.Duration, r Rule) (*Waiter[T], Result) {
	for q.waiting > 0 {
		w, how := q.turn(now, r)
		if v := w.TooLate(nil, now, r.Needs); v != Waits {
			q.leave(w, v, now)
			continue
		}
		if q.turns++; how == LongestWait {
			q.turns = 0
		}
		g := w.group
		q.Remove(w)
		q.number++
		g.turn = q.number // one slot a turn
		return w, how
	}
	return nil, Waits
}

func (q *Queue[T]) turn(now time.Duration, r Rule) (*Waiter[T], Result) {
	if q.Every > 0 && q.turns+1 >= q.Every {
		return q.LongestWaiting(), LongestWait
	}
	g := q.next(r)
	switch {
	case g == nil:
		return nil, Waits
	case q.stands(g.lane, now, r):
		return g.newest, Newest
	}
	return g.oldest, Oldest
}

// LongestWaiting returns the task that has waited longest of all, nil if none waits.
func (q *Queue[T]) LongestWaiting() (oldest *Waiter[T]) {
	for _, l := range q.lanes {
		if w := l.oldest; w != nil && (oldest == nil || w.number < oldest.number) {
			oldest = w
		}
	}
	return oldest
}

// Remove takes w, which waits, out of the queue. The caller then owns w and has to Wake it, unless it is w's own goroutine.
func (q *Queue[T]) Remove(w *Waiter[T]) {
	l := w.lane
	w.lane = nil
	q.waiting--
	l.waiting--
	if w.exempt {
		q.exempt--
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
	q.part(w)
}

func (q *Queue[T]) push(l *lane[T], w *Waiter[T]) {
	q.number++
	w.number, w.lane, w.older = q.number, l, l.newest
	q.waiting++
	l.waiting++
	if w.exempt {
		q.exempt++
	}
	if l.newest == nil {
		l.oldest, l.since = w, w.Since
	} else {
		l.newest.newer = w
	}
	l.newest = w
	q.join(l, w)
}

func (q *Queue[T]) leave(w *Waiter[T], why Result, now time.Duration) {
	q.Remove(w)
	q.Left(w, why, now)
}

// laneOf returns the lane of a priority, created on demand: usually there are a few, and never more than 256.
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
	q.Others.Weight = 1
	l.plain.tenant, l.plain.lane = &q.Others, l
	q.lanes = slices.Insert(q.lanes, at, l)
	return l
}

// makeRoom evicts the newest task of the lowest priority from a full queue, if it is less important than w, and reports
// whether there is room. The starvation rule may exempt that task, and then the next one is evicted; or exempt w, and then
// the newest task of the lowest priority is evicted whatever it is. If none is less important, a tenant that has more waiting than w's
// makes room, or if w's lane has a standing queue, the oldest of that lane or of the tenant that has most waiting in it.
func (q *Queue[T]) makeRoom(l *lane[T], w *Waiter[T], now time.Duration, r Rule) bool {
	victim := q.victim()
	goes := func() bool { return victim != nil && (w.exempt || victim.Priority < w.Priority) }
	if !w.exempt && !goes() {
		x := q.crowded(l, w, now, r)
		if oldest := l.crowd().oldest; x == nil && oldest != nil && !oldest.exempt && q.stands(l, now, r) {
			x = oldest
		}
		if x != nil {
			q.leave(x, Full, now)
			return true
		}
	}
	switch {
	case w.exempt:
	case !goes():
		w.exempt = q.takeExemption()
	case q.takeExemption():
		q.makeExempt(victim)
		victim = q.victim()
	}
	if !goes() {
		return false
	}
	q.leave(victim, Evicted, now)
	return true
}

// victim returns the newest task, of the tenant that has most waiting, of the lowest priority that is not exempt; nil: there is none.
func (q *Queue[T]) victim() *Waiter[T] {
	for _, l := range slices.Backward(q.lanes) {
		if w := l.crowd().newest; w != nil && !w.exempt {
			return w
		}
		for w := l.newest; w != nil; w = w.older {
			if !w.exempt {
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
	q.rejections++
	if q.rejections < q.Every || q.exempt >= max(1, q.Limit/q.Every) {
		return false
	}
	q.rejections = 0
	return true
}

func (q *Queue[T]) makeExempt(w *Waiter[T]) {
	w.exempt = true
	q.exempt++
}
