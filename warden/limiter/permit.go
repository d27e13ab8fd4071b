// A permit is the right to run, and ends it once.

package limiter

import "time"

// Permit is one place held by one task. It is a small value, free to copy and to release from any goroutine: all copies
// together release once. The zero Permit releases nothing.
type Permit struct {
	l      *Limiter
	seat   *seat
	number uint64 // what the seat's number is while this permit is valid; no other permit ever has the same pair
}

// seat gives permits their identity and keeps what is known of the task. Its number is even while nobody has it, odd
// while somebody has, and grows by one at each change. What it keeps is written by the task that has just taken it, and
// read through the permit until it is released.
type seat struct {
	number word
	pooled bool
	task   Task
	v      verdict
	began  time.Time // on an observed limiter: when the task was told to the observer
}

// seats lie in the limiter itself, for tasks that are few; the others get theirs from a pool.
const seats = 4

// sit makes the permit of a task that holds a place. Tasks in flight together begin to look at different seats.
func (l *Limiter) sit(t Task, v *verdict) Permit {
	for i := range uint32(seats) {
		s := &l.seats[(uint32(v.word)+i)%seats]
		if n := s.number.Load(); n%2 == 0 && s.number.CompareAndSwap(n, n+1) {
			s.task, s.v = t, *v
			return Permit{l, s, n + 1}
		}
	}
	s := l.seatPool.Get().(*seat)
	n := s.number.Load() + 1
	s.number.Store(n)
	s.pooled, s.task, s.v = true, t, *v
	return Permit{l, s, n}
}

// Release ends the task and reports true to exactly one caller: the first. False means that the permit was released
// before, or is the zero Permit; then nothing has changed, also if the place has long been given to somebody else.
// It hands the place on to its owner and to those who wait, does not block, and allocates nothing.
func (p Permit) Release() bool {
	if p.seat == nil {
		return false
	}
	l := p.l
	var e Explanation
	var began time.Time
	if l.observer != nil && p.seat.number.Load() == p.number {
		e, began = p.Explain(), p.seat.began
	}
	if !p.seat.number.CompareAndSwap(p.number, p.number+1) {
		return false
	}
	if p.seat.pooled {
		l.ended.Add(1)
		l.seatPool.Put(p.seat)
	}
	l.giveBack()
	if l.observer != nil {
		e.Outcome, e.At = Executed, time.Now()
		l.observe(e, e.At.Sub(began))
	}
	return true
}

// Explain says by what right the task was started, how long it had waited, and under which decision. It is valid until
// the permit is released; afterwards it is the zero Explanation. It allocates nothing.
func (p Permit) Explain() Explanation {
	if p.seat == nil || p.seat.number.Load() != p.number {
		return Explanation{}
	}
	return p.l.explainStart(p.seat.task, p.seat.v)
}

func (l *Limiter) explainStart(t Task, v verdict) Explanation {
	return Explanation{
		Limiter: l.name, Outcome: Started, Grant: v.grant, Task: t, Waited: v.waited,
		Decision: v.r.decision, Standing: v.r.standing, InFlight: running(v.word), QueueLen: int(v.queueLen), Cut: v.cut,
	}
}

// executed counts releases: each one has made a seat's number even again.
func (l *Limiter) executed() uint64 {
	n := l.ended.Load()
	for i := range l.seats {
		n += l.seats[i].number.Load() / 2
	}
	return n
}
