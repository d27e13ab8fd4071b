// SPDX-License-Identifier: Apache-2.0

// The engine: a discrete-event simulation of users, servers and a dependency, with its own clock.

package sim

import (
	"math/rand/v2"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// tick is the sampling interval.
const tick = 100 * time.Millisecond

// engine is a running world. All fields belong to the goroutine that runs it.
type engine struct {
	w       *World
	now     time.Duration
	events  events
	numbers uint64
	users   []user
	next    int       // index of the next user to arrive
	open    int       // users without an outcome, including those who have not arrived
	inside  int       // attempts sent and not yet answered
	servers []*server // hop after hop
	deps    []dependency
	spell   Spell // what is disturbed now
	client  client
	chance  *rand.Rand // of load balancing and backoff, which depend on earlier outcomes
	bubble  bubble
	result  *Result
}

// attempt is one message to a server, from a user or from a server of the hop before.
type attempt struct {
	*user
	number   uint64
	parent   *attempt // of a call between hops
	on       *server
	priority decision.Priority // that the server sees
	sent     time.Duration
	due      time.Duration // end of the sender's patience
	worth    time.Duration // end of the user's patience
	over     bool          // its sender has heard of it or has left
	stage    stage
	needs    time.Duration // remaining processor time of this stage
	since    time.Duration // start of the current wait for a processor
	step     time.Duration // length of the running time slice
	began    time.Duration // started by the gate
	gone     bool          // ended for the server while its call goes on
	pass     pass
	ended    time.Duration // answered by the server
	ok       bool          // with success
	err      error         // or with this rejection
}

// stage is what an attempt does on its server.
type stage uint8

const (
	arriving stage = iota
	computing
	calling
	finishing
	marking // a worker of the collector
)

// run runs a world whose servers have this guard. With trace the result keeps users and samples.
func run(w *World, g Guard, trace bool) (*Result, error) {
	e := &engine{w: w, users: w.users(), chance: rand.New(rand.NewPCG(w.Seed, 2)),
		result: &Result{World: w, Guard: g.Name, trace: trace}}
	e.bubble.start, e.open = time.Now(), len(e.users)
	for _, places := range append([]int{w.Places}, w.More...) {
		e.deps = append(e.deps, dependency{places: places})
	}
	if w.Behind > 0 {
		e.deps[0].behind = &dependency{places: w.Behind}
	}
	e.result.hops = make([]executions, len(w.Front)+1)
	var err error
	if e.client, err = newClient(e); err != nil {
		return nil, err
	}
	if len(e.users) > 0 {
		e.after(e.users[0].at, (*engine).comes, nil)
	}
	for _, s := range w.Spells {
		for _, at := range []float64{s.From, s.Until} {
			e.after(seconds(at), func(e *engine, _ *attempt) { e.disturb(at) }, nil)
		}
	}
	per := max(1, w.Servers)
	for i := range per * len(e.result.hops) {
		s := &server{e: e, index: i, hop: i / per}
		if s.gate, err = g.make(s); err != nil {
			return nil, err
		}
		e.servers = append(e.servers, s)
		// Servers take their samples at different instants.
		e.after(tick+time.Duration(i)*tick/time.Duration(per), s.tick, nil)
	}
	e.disturb(0)
	for _, s := range e.servers {
		if w.Heap != nil {
			s.heap = newHeap(s, w.Heap)
		}
	}
	for e.result.Killed == 0 && e.open > 0 && !(w.Cut && e.now >= seconds(w.Length)) {
		next := e.events.pop()
		e.now = next.at
		next.do(e, next.of)
	}
	for _, s := range e.servers {
		s.gate.close()
	}
	e.result.finish(e)
	return e.result, nil
}

func (e *engine) disturb(at float64) {
	e.spell = e.w.during(at)
	for _, s := range e.servers {
		s.account(e.now)
		s.allowed, s.cores, s.paused = e.spell.Cores, max(1, e.spell.Cores-e.spell.Stolen), e.spell.Pause
		s.dispatch()
	}
}

func (e *engine) comes(*attempt) {
	u := &e.users[e.next]
	if e.next++; e.next < len(e.users) {
		e.after(e.users[e.next].at-e.now, (*engine).comes, nil)
	}
	if e.client.begin(u) {
		e.try(u)
	} else {
		e.decide(u, false)
	}
}

func (e *engine) try(u *user) {
	u.attempts++
	e.result.try(e.now)
	due := e.now + u.patience
	e.send(&attempt{user: u, priority: u.priority, due: due, worth: due}, 0)
}

// callNext calls the next hop, whose answer ends this attempt.
func (e *engine) callNext(a *attempt) {
	sub := &attempt{user: a.user, parent: a, priority: decision.Normal, due: e.now + seconds(e.w.Inner), worth: a.worth}
	if e.w.Propagate {
		sub.priority, sub.due = a.priority, a.due
	}
	e.send(sub, a.on.hop+1)
}

func (e *engine) send(a *attempt, hop int) {
	e.numbers++
	a.number, a.sent, a.on = e.numbers, e.now, e.choose(hop)
	a.on.outstanding++
	e.inside++
	e.result.Sent++
	e.result.Inside = max(e.result.Inside, e.inside)
	e.after(a.due-e.now, (*engine).leaves, a)
	e.travel(e.now, (*engine).arrives, a)
}

// choose is the load balancer: of two random servers of the hop it takes the one with fewer outstanding attempts.
func (e *engine) choose(hop int) *server {
	n := max(1, e.w.Servers)
	those := e.servers[hop*n : (hop+1)*n]
	if n == 1 {
		return those[0]
	}
	a, b := those[e.chance.IntN(n)], those[e.chance.IntN(n)]
	if b.outstanding < a.outstanding {
		return b
	}
	return a
}

// travel does something when a message that was sent at a time has crossed the network.
func (e *engine) travel(sent time.Duration, do func(*engine, *attempt), a *attempt) {
	if e.w.Network == 0 {
		do(e, a)
		return
	}
	e.after(sent+seconds(e.w.Network)-e.now, do, a)
}

func (e *engine) arrives(a *attempt) { a.on.compute(a, e.w.entry()) }

func (e *engine) done(a *attempt) {
	switch a.stage {
	case arriving:
		switch {
		case e.spell.Down:
			e.refuse(a, e.now, nil)
		case a.kind.Outside:
			e.execute(a)
		default:
			e.result.Asked++
			a.on.gate.ask(a)
		}
	case computing:
		switch {
		case a.on.hop < len(e.w.Front):
			e.callNext(a)
		case a.calls == 0:
			e.finish(a, true, nil)
		default:
			a.stage = calling
			e.call(a)
		}
	case calling:
		if a.gone {
			return
		}
		a.stage = finishing
		a.on.compute(a, arrival+a.computes-a.computes/2)
	case finishing:
		e.finish(a, true, nil)
	case marking:
		a.on.heap.marked(a)
	}
}

// start is called by the gate to start an attempt. Half of the computing comes before the call of the dependency.
func (e *engine) start(a *attempt) {
	a.on.sensor.start(a.kind, e.now)
	e.result.Started++
	e.result.Waited += e.now - a.sent
	e.execute(a)
}

func (e *engine) execute(a *attempt) {
	a.began, a.stage = e.now, computing
	if a.kind == &endless {
		return
	}
	before := a.computes
	switch {
	case a.on.hop < len(e.w.Front):
		before = seconds(e.w.Front[a.on.hop])
	case a.calls > 0:
		before /= 2
	}
	if h := a.on.heap; h != nil {
		before += h.start(a)
	}
	if before == 0 {
		e.done(a)
		return
	}
	a.on.compute(a, before)
}

// finish ends an execution, also if the user has left: servers do not notice that.
func (e *engine) finish(a *attempt, ok bool, err error) {
	e.release(a)
	e.answer(a, e.now, ok, err)
}

// release ends an execution for the server.
func (e *engine) release(a *attempt) {
	e.result.executed(a, e.now)
	if h := a.on.heap; h != nil {
		h.end(a)
	}
	if a.kind.Outside {
		return
	}
	a.on.sensor.end(a.kind, a.began, e.now, a.gone)
	a.on.gate.release(a)
}

// refuse is called by the gate to reject an attempt, possibly with a time slightly in the past.
func (e *engine) refuse(a *attempt, at time.Duration, err error) {
	e.result.Refused++
	e.answer(a, at, false, err)
}

func (e *engine) answer(a *attempt, at time.Duration, ok bool, err error) {
	a.ended, a.ok, a.err = at, ok, err
	e.inside--
	e.travel(at, (*engine).hears, a)
}

// hears tells an attempt's sender its answer.
func (e *engine) hears(a *attempt) {
	if a.over {
		return
	}
	a.over = true
	e.told(a, a.ended+seconds(e.w.Network), true)
}

// leaves ends the patience of an attempt's sender.
func (e *engine) leaves(a *attempt) {
	if a.over {
		return
	}
	a.over = true
	switch {
	case a.kind.Outlives && a.stage == calling && a.kind.Knows != "hidden":
		a.gone = true
		e.release(a)
		e.inside--
	case a.kind.Knows == "cancel" && !a.kind.Outside:
		a.on.gate.leave(a)
	}
	e.told(a, e.now, false)
}

// told continues an attempt's sender at a time: with the answer, or after silence.
func (e *engine) told(a *attempt, at time.Duration, heard bool) {
	a.on.outstanding--
	ok, err := heard && a.ok, a.err
	if !heard {
		err = nil
	}
	if a.parent != nil {
		e.finish(a.parent, ok, err)
		return
	}
	a.refused = heard && !ok
	e.client.ended(a.user, ok)
	switch {
	case ok:
		e.result.Answers++
		e.decide(a.user, true)
		return
	case heard:
		e.result.Refusals++
	default:
		e.result.Timeouts++
	}
	if wait, again := e.client.again(a.user, err); again {
		e.after(at+wait-e.now, func(e *engine, a *attempt) { e.try(a.user) }, a)
	} else {
		e.decide(a.user, false)
	}
}

func (e *engine) decide(u *user, good bool) {
	u.good, u.ended = good, e.now
	e.open--
	e.client.done(u)
}

func (e *engine) after(d time.Duration, do func(*engine, *attempt), of *attempt) {
	e.numbers++
	e.events.push(event{e.now + max(d, 0), e.numbers, of, do})
}

type event struct {
	at     time.Duration
	number uint64
	of     *attempt
	do     func(*engine, *attempt)
}

func (a *event) before(b *event) bool { return a.at < b.at || a.at == b.at && a.number < b.number }

// events is a heap, written out because most of a run's time is spent here.
type events []event

func (h *events) push(ev event) {
	*h = append(*h, ev)
	s, i := *h, len(*h)-1
	for ; i > 0 && ev.before(&s[(i-1)/2]); i = (i - 1) / 2 {
		s[i] = s[(i-1)/2]
	}
	s[i] = ev
}

func (h *events) pop() event {
	s, n := *h, len(*h)-1
	top, last, i := s[0], s[n], 0
	for down := 1; down < n; down = 2*i + 1 {
		if down+1 < n && s[down+1].before(&s[down]) {
			down++
		}
		if !s[down].before(&last) {
			break
		}
		s[i], i = s[down], down
	}
	s[i], s[n] = last, event{}
	*h = s[:n]
	return top
}
