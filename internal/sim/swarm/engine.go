// The engine: one event after the other, by a clock of its own. The bubble's clock follows where the limiter will look at it.

package swarm

import (
	"math"
	"time"
)

// tick is the time between two samples.
const tick = 100 * time.Millisecond

// engine is a running world. All of it belongs to the goroutine that runs it.
type engine struct {
	w     *World
	users []user
	next  int // the user who comes next

	now     time.Duration
	events  events
	numbers uint64
	last    time.Duration // when the last patience ends of all attempts made so far
	open    int           // users without an outcome, also those who have not come
	inside  int           // attempts that have come and have not been answered
	gate    gate
	service service
	sensor  sensor
	result  *Result
}

// attempt is one try of a user.
type attempt struct {
	*user
	number   uint64
	due      time.Duration // when its user leaves
	left     bool          // its user has left
	answered bool
	stage    stage
	needs    time.Duration // of a processor, in this stage
	since    time.Duration // when it began to wait for one
	step     time.Duration // of the slice that runs
	came     time.Duration // when its user sent it
	began    time.Duration // when it was started
	pass     pass
}

// stage is what an attempt does.
type stage uint8

const (
	arriving stage = iota
	computing
	calling
	finishing
)

// Run runs a world behind a gate.
func run(w *World, g gate, trace bool) *Result {
	e := &engine{w: w, users: w.users(), gate: g, result: newResult(w, trace)}
	e.open = len(e.users)
	e.service.cores, e.service.places = w.Cores, w.Places
	if len(e.users) > 0 {
		e.after(e.users[0].at, comes, nil)
	}
	e.after(tick, ticks, nil)
	g.open(e)
	for e.open > 0 && !(e.next == len(e.users) && e.now > e.last) {
		next := e.events.pop()
		e.now = next.at
		e.happen(next)
	}
	g.close()
	e.result.finish(e)
	return e.result
}

// happen does what is due.
func (e *engine) happen(ev event) {
	switch ev.kind {
	case comes:
		u := &e.users[e.next]
		if e.next++; e.next < len(e.users) {
			e.after(e.users[e.next].at-e.now, comes, nil)
		}
		e.try(u)
	case again:
		e.try(ev.of.user)
	case sliced:
		e.sliced(ev.of)
	case called:
		e.called(ev.of)
	case leaves:
		e.leaves(ev.of)
	case ticks:
		e.gate.tick()
		e.after(tick, ticks, nil)
	}
}

// try makes an attempt.
func (e *engine) try(u *user) {
	u.attempts++
	e.numbers++
	a := &attempt{user: u, number: e.numbers, came: e.now, due: e.now + u.patience}
	e.last = max(e.last, a.due)
	e.inside++
	e.result.Attempts++
	e.result.Inside = max(e.result.Inside, e.inside)
	if e.w.Attempts > 1 || e.w.Knows == "cancel" {
		e.after(u.patience, leaves, a)
	}
	e.compute(a, arrival)
}

// done goes on after a stage.
func (e *engine) done(a *attempt) {
	u := a.user
	switch a.stage {
	case arriving:
		e.result.Asked++
		e.gate.ask(a)
	case computing:
		if u.calls == 0 {
			e.finish(a)
			return
		}
		a.stage = calling
		e.call(a)
	case calling:
		a.stage = finishing
		e.compute(a, arrival+u.computes-u.computes/2)
	case finishing:
		e.finish(a)
	}
}

// start is what the gate says to an attempt that may run. Half of the computing comes before the call.
func (e *engine) start(a *attempt) {
	e.sensor.start(e.now)
	e.result.Started++
	e.result.Waited += e.now - a.came
	a.began, a.stage = e.now, computing
	before := a.computes
	if a.calls > 0 {
		before /= 2
	}
	if before == 0 {
		e.done(a)
		return
	}
	e.compute(a, before)
}

func (e *engine) finish(a *attempt) {
	e.sensor.end(a.began, e.now)
	a.answered = true
	e.inside--
	e.result.Took += e.now - a.began
	e.gate.release(a)
	switch {
	case a.left:
		e.result.Unheard++
	case e.now > a.due:
		e.result.TooLate++
		e.decide(a.user, false)
	default:
		e.result.Answers++
		e.decide(a.user, true)
	}
}

// refuse is what the gate says to an attempt that may not run, at a time that may lie a little back.
func (e *engine) refuse(a *attempt, at time.Duration) {
	a.answered = true
	e.inside--
	if a.left {
		e.result.Deaf++
		return
	}
	e.result.Refused++
	e.retry(a, at)
}

// leaves is when the patience of a user ends.
func (e *engine) leaves(a *attempt) {
	if a.answered {
		return
	}
	a.left = true
	if e.w.Knows == "cancel" {
		e.gate.leave(a)
	}
	e.retry(a, e.now)
}

// retry has the user of an attempt ask again, or give up.
func (e *engine) retry(a *attempt, at time.Duration) {
	u := a.user
	if u.attempts == e.w.Attempts {
		e.decide(u, false)
		return
	}
	wait := seconds(e.w.Backoff * u.backoff * math.Ldexp(1, u.attempts-1))
	e.after(at+wait-e.now, again, a)
	e.last = max(e.last, at+wait+u.patience)
}

func (e *engine) decide(u *user, good bool) {
	u.decided, u.satisfied = true, good
	e.open--
}

// after plans an event.
func (e *engine) after(d time.Duration, k kind, of *attempt) {
	e.numbers++
	e.events.push(event{e.now + max(d, 0), e.numbers, of, k})
}

// kind says what an event is.
type kind uint8

const (
	comes kind = iota
	again
	sliced
	called
	leaves
	ticks
)

type event struct {
	at     time.Duration
	number uint64
	of     *attempt
	kind   kind
}

func (a *event) before(b *event) bool { return a.at < b.at || a.at == b.at && a.number < b.number }

// events is a heap, written out because it is where the time of a run goes.
type events []event

func (h *events) push(ev event) {
	*h = append(*h, ev)
	s, i := *h, len(*h)-1
	for i > 0 {
		up := (i - 1) / 2
		if !ev.before(&s[up]) {
			break
		}
		s[i] = s[up]
		i = up
	}
	s[i] = ev
}

func (h *events) pop() event {
	s := *h
	top, last := s[0], s[len(s)-1]
	s[len(s)-1] = event{}
	s = s[:len(s)-1]
	*h = s
	if len(s) == 0 {
		return top
	}
	i := 0
	for {
		down := 2*i + 1
		if down >= len(s) {
			break
		}
		if down+1 < len(s) && s[down+1].before(&s[down]) {
			down++
		}
		if !s[down].before(&last) {
			break
		}
		s[i] = s[down]
		i = down
	}
	s[i] = last
	return top
}
