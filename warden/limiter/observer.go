// Telling an observer what happened, without letting it change anything.

package limiter

import "time"

// Observer is told every outcome. Observe is called synchronously, after the decision, by the goroutine that the task is
// of (or that released its permit), holding no lock; it may use the limiter. It is called by many goroutines at once, and
// events of different goroutines may arrive in another order than they happened. A panic in it is contained and counted
// in [Stats].ForeignPanics. Events are for observation only: nothing of them may find its way back to control.
type Observer interface {
	Observe(Event)
}

// Event is one outcome: a task was started, executed, rejected or canceled. A started one tells later, when its permit is
// released, that it was executed; its At is then the time of the release.
type Event struct {
	Explanation

	// Took is how long an executed task held its place, from its start to the release of its permit; else 0.
	Took time.Duration
}

// observe calls the observer and contains its panic.
func (l *Limiter) observe(e Explanation, took time.Duration) {
	defer l.contain()
	l.observer.Observe(Event{e, took})
}

// contain is deferred around every call of foreign code.
func (l *Limiter) contain() {
	if recover() != nil { //nolint:revive // it is deferred itself
		l.panics.Add(1)
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
