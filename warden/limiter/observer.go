// Telling an observer what happened, without letting it change anything.

package limiter

import (
	"context"
	"time"
)

// Observer is told every outcome. Observe is called synchronously, after the decision, by the goroutine that the task is
// of (or that released its permit), holding no lock; it may use the limiter. It is called by many goroutines at once, and
// events of different goroutines may arrive in another order than they happened. A panic in it is contained and counted
// in [Stats].ForeignPanics. Events are for observation only: nothing of them may find its way back to control.
type Observer interface {
	Observe(Event)
}

// Event is one outcome: a task was started, executed, rejected or canceled; or the mode has changed, and then only Limiter, Mode, At,
// Decision and Standing mean something, as they are now. A started one tells later, when its permit is
// released, that it was executed; its At is then the time of the release.
type Event struct {
	Explanation

	// Took is how long an executed task held its place, from its start to the release of its permit; else 0.
	Took time.Duration
}

// tellStart tells the observer, if there is one, that a task starts. If the observer ends the goroutine, nobody will own
// the place: it is given back.
func (l *Limiter) tellStart(p Permit) Permit {
	if l.observer == nil {
		return p
	}
	owned := false
	defer func() {
		if !owned {
			p.Release()
		}
	}()
	e := p.Explain()
	e.At = time.Now()
	l.mu.Lock()
	p.seat.began = e.At
	l.mu.Unlock()
	l.observe(e, 0)
	owned = true
	return p
}

// tellMode tells the observer, if there is one, which mode is in force.
func (l *Limiter) tellMode() {
	if l.observer == nil {
		return
	}
	l.mu.Lock()
	r := l.rule
	l.mu.Unlock()
	l.observe(Explanation{
		Limiter: l.name, Outcome: ModeChanged, At: time.Now(), Mode: r.mode, Decision: r.decision, Standing: r.standing, Cut: lowest,
	}, 0)
}

// observe calls the observer and contains its panic.
func (l *Limiter) observe(e Explanation, took time.Duration) {
	defer l.contain()
	l.observer.Observe(Event{e, took})
}

// errOf is the context's error. One that panics has ended.
func (l *Limiter) errOf(ctx context.Context) (err error) {
	defer l.contain()
	err = context.Canceled //nolint:wastedassign // it stays if Err panics
	return ctx.Err()
}

// contain is deferred around every call of foreign code for which somebody else's task could be lost.
func (l *Limiter) contain() {
	if recover() != nil { //nolint:revive // it is deferred itself
		l.mu.Lock()
		l.foreignPanics++
		l.mu.Unlock()
	}
}

// Observers are several observers as one: each is told every event, in order, also if one before it panics. They allocate
// nothing of their own. None of them may be nil.
type Observers []Observer

// Observe tells all of them. Of their panics it passes on the last.
func (o Observers) Observe(e Event) {
	if len(o) == 0 {
		return
	}
	defer o[1:].Observe(e)
	o[0].Observe(e)
}
