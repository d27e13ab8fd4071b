// The service: processors under Go's scheduler, and a dependency whose queue is invisible from outside.

package swarm

import "time"

const (
	// slice is how long a goroutine runs before it is preempted, if others are runnable.
	slice = 10 * time.Millisecond
	// arrival is the processor time of a request before it asks the limiter, and again when its call returns.
	arrival = 20 * time.Microsecond
)

// service models the processors and the dependency.
type service struct {
	cores int
	busy  int
	ready line // waiting for a processor
	spent time.Duration
	mark  time.Duration // spent is counted until then
	lags  []time.Duration
	seen  int

	places int
	taken  int
	calls  line // waiting for a slot of the dependency
}

// compute takes d of processor time.
func (e *engine) compute(a *attempt, d time.Duration) {
	a.needs = d
	e.enqueue(a)
}

func (e *engine) enqueue(a *attempt) {
	a.since = e.now
	e.service.ready.push(a)
	e.dispatch()
}

func (e *engine) dispatch() {
	s := &e.service
	for s.busy < s.cores && s.ready.len() > 0 {
		a := s.ready.pop()
		s.account(e.now)
		s.busy++
		// Go records one in eight delays.
		if s.seen++; s.seen%8 == 0 {
			s.lags = append(s.lags, e.now-a.since)
		}
		e.slice(a)
	}
}

func (e *engine) slice(a *attempt) {
	a.step = min(a.needs, slice)
	e.after(a.step, sliced, a)
}

// sliced ends a time slice: the attempt continues if no other is runnable.
func (e *engine) sliced(a *attempt) {
	s := &e.service
	if a.needs -= a.step; a.needs > 0 && s.ready.len() == 0 {
		e.slice(a)
		return
	}
	s.account(e.now)
	s.busy--
	e.dispatch()
	if a.needs > 0 {
		e.enqueue(a)
		return
	}
	e.done(a)
}

// account adds up processor time.
func (s *service) account(now time.Duration) {
	s.spent += time.Duration(s.busy) * (now - s.mark)
	s.mark = now
}

// call calls the dependency.
func (e *engine) call(a *attempt) {
	s := &e.service
	if s.places > 0 && s.taken == s.places {
		s.calls.push(a)
		return
	}
	s.taken++
	e.after(a.calls, called, a)
}

func (e *engine) called(a *attempt) {
	s := &e.service
	if s.taken--; s.calls.len() > 0 {
		s.taken++
		next := s.calls.pop()
		e.after(next.calls, called, next)
	}
	e.done(a)
}

// idle reports whether processors are idle and nothing waits inside, at this instant.
func (s *service) idle() bool {
	return s.ready.len() == 0 && s.calls.len() == 0 && (s.places == 0 || s.taken < s.places)
}

// line is a first-come-first-served queue.
type line struct {
	of   []*attempt
	head int
}

func (l *line) len() int { return len(l.of) - l.head }

func (l *line) push(a *attempt) {
	if l.head > 1024 && l.head > len(l.of)/2 {
		n := copy(l.of, l.of[l.head:])
		clear(l.of[n:])
		l.of, l.head = l.of[:n], 0
	}
	l.of = append(l.of, a)
}

func (l *line) pop() *attempt {
	a := l.of[l.head]
	l.of[l.head] = nil
	if l.head++; l.head == len(l.of) {
		l.of, l.head = l.of[:0], 0
	}
	return a
}
