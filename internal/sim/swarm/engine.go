// The engine: a discrete-event simulation with its own clock. The bubble's clock follows whenever the limiter reads it.

package swarm

import (
	"math"
	"time"
)

// tick is the sampling interval.
const tick = 100 * time.Millisecond

// engine is a running world. All fields belong to the goroutine that runs it.
type engine struct {
	w     *World
	users []user
	next  int // index of the next user to arrive

	now     time.Duration
	events  events
	numbers uint64
	last    time.Duration // latest end of the patience behind any attempt so far
	open    int           // users without an outcome, including those who have not arrived
	inside  int           // attempts received and not yet answered
	gate    gate
	service service
	sensor  sensor
	result  *Result
}

// attempt is one attempt of a user.
type attempt struct {
	*user
	number   uint64
	due      time.Duration // end of its user's patience
	left     bool          // the user has left
	answered bool
	stage    stage
	needs    time.Duration // remaining processor time of this stage
	since    time.Duration // start of the current wait for a processor
	step     time.Duration // length of the running time slice
	came     time.Duration // sent by its user
	began    time.Duration // started by the gate
	pass     pass
}

// stage is a step of an attempt.
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

// happen processes an event.
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

// try sends an attempt.
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

// done continues after a stage.
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

// start is called by the gate to start an attempt. Half of the computing comes before the call of the dependency.
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

// refuse is called by the gate to reject an attempt, possibly with a time slightly in the past.
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

// leaves ends the patience of a user.
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

// retry makes the user of an attempt retry or give up.
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

// after schedules an event.
func (e *engine) after(d time.Duration, k kind, of *attempt) {
	e.numbers++
	e.events.push(event{e.now + max(d, 0), e.numbers, of, k})
}

// kind is the kind of an event.
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

// events is a heap, written out because most of a run's time is spent here.
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
