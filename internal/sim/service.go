// SPDX-License-Identifier: Apache-2.0

// The service: processors under Go's scheduler, and a dependency whose queue is invisible from outside.

package sim

import "time"

const (
	// slice is how long a goroutine runs before it is preempted, if others are runnable.
	slice = 10 * time.Millisecond
	// arrival is the processor time of a request before it asks the limiter, and again when its call returns.
	arrival = 20 * time.Microsecond
)

// server is a process with its processors, of which one first-come-first-served run queue is modelled.
type server struct {
	e           *engine
	index, hop  int
	gate        gate
	heap        *heap
	sensor      sensor
	outstanding int // attempts whose sender still waits, as the load balancer counts them

	allowed, cores int  // that it knows of, and that it gets
	paused         bool // a garbage-collection pause: no goroutine gets a processor
	busy           int
	ready          line          // waiting for a processor
	spent, stolen  time.Duration // processor time, and what would have been used of what others took
	mark           time.Duration // both are counted until then
	share          share
	lags           []time.Duration
	seen           int
}

// tick takes a sample for the gate.
func (s *server) tick(e *engine, _ *attempt) {
	if s.heap != nil {
		s.heap.tick()
	}
	if !e.spell.Blind {
		s.gate.tick()
	}
	e.after(tick, s.tick, nil)
}

// compute takes d of processor time.
func (s *server) compute(a *attempt, d time.Duration) {
	a.needs = d
	s.enqueue(a)
}

func (s *server) enqueue(a *attempt) {
	s.account(s.e.now)
	a.since = s.e.now
	s.ready.push(a)
	s.dispatch()
}

// dispatch gives free processors to runnable goroutines.
func (s *server) dispatch() {
	for s.busy < s.cores && len(s.ready) > 0 && !s.paused {
		a := s.ready.pop()
		s.account(s.e.now)
		s.busy++
		// Go records one in eight delays.
		if s.seen++; s.seen%8 == 0 {
			s.lags = append(s.lags, s.e.now-a.since)
		}
		s.slice(a)
	}
}

func (s *server) slice(a *attempt) {
	a.step = min(a.needs, slice)
	s.e.after(a.step, (*engine).sliced, a)
}

// sliced ends a time slice: the attempt continues if no other is runnable.
func (e *engine) sliced(a *attempt) {
	s := a.on
	if a.needs -= a.step; a.needs > 0 && len(s.ready) == 0 && s.busy <= s.cores && !s.paused {
		s.slice(a)
		return
	}
	s.account(e.now)
	s.busy--
	s.dispatch()
	if a.needs > 0 {
		s.enqueue(a)
		return
	}
	e.done(a)
}

func (s *server) account(now time.Duration) {
	s.spent += time.Duration(s.busy) * (now - s.mark)
	s.stolen += time.Duration(min(len(s.ready), s.allowed-min(s.allowed, s.cores))) * (now - s.mark)
	s.mark = now
}

// dependency serves the calls of all servers, first come, first served.
type dependency struct {
	places, taken int // places 0: unlimited
	queue         line
	behind        *dependency // that has to serve what has a place; nil: nothing has
}

// call calls the dependency of a kind.
func (e *engine) call(a *attempt) {
	if a.kind.Pool < 0 {
		e.serve(a)
		return
	}
	d := &e.deps[a.kind.Pool]
	d.queue.push(a)
	d.admit(e)
}

// admit lets in who has a place, in order.
func (d *dependency) admit(e *engine) {
	for len(d.queue) > 0 && (d.places == 0 || d.taken+d.queue[0].kind.takes() <= d.places) {
		a := d.queue.pop()
		if a.gone && !a.kind.Deaf {
			continue
		}
		d.taken += a.kind.takes()
		if d.behind == nil {
			e.serve(a)
			continue
		}
		d.behind.queue.push(a)
		d.behind.pass(e)
	}
}

// pass serves as many as it can of those that have a place before it.
func (d *dependency) pass(e *engine) {
	for len(d.queue) > 0 && d.taken < d.places {
		d.taken++
		e.serve(d.queue.pop())
	}
}

func (e *engine) serve(a *attempt) {
	e.after(time.Duration(float64(a.calls)*e.spell.Slow), (*engine).called, a)
}

// called returns from the dependency.
func (e *engine) called(a *attempt) {
	if a.kind.Pool >= 0 {
		d := &e.deps[a.kind.Pool]
		if d.behind != nil {
			d.behind.taken--
			d.behind.pass(e)
		}
		d.taken -= a.kind.takes()
		d.admit(e)
	}
	e.done(a)
}

// idle reports whether nothing waits inside, neither for a processor nor for the dependency, at this instant.
func (s *server) idle() bool {
	for _, d := range s.e.deps {
		if len(d.queue) > 0 || d.places > 0 && d.taken >= d.places || d.behind != nil && len(d.behind.queue) > 0 {
			return false
		}
	}
	return len(s.ready) == 0
}

// line is a first-come-first-served queue.
type line []*attempt

func (l *line) push(a *attempt) { *l = append(*l, a) }

func (l *line) pop() *attempt {
	a := (*l)[0]
	(*l)[0] = nil
	*l = (*l)[1:]
	return a
}

// calling is how many calls wait for a dependency.
func (e *engine) calling() (n int) {
	for _, d := range e.deps {
		n += len(d.queue)
	}
	return n
}
