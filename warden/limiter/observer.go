// SPDX-License-Identifier: Apache-2.0

// The observer: it receives every outcome and can change none.

package limiter

import (
	"context"
	"fmt"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/nilcheck"
)

// Observer receives every outcome. The task's goroutine (or the one that released its permit) calls Observe synchronously
// after the decision, without holding a lock, so Observe may use the limiter. Observe must be safe for concurrent use, and
// events of different goroutines may arrive out of order. A panic in Observe is recovered and counted in
// [Stats].ObserverPanics. Events are for observation only: do not feed them back into control.
type Observer interface {
	Observe(Event)
}

// Event is one outcome: a task was started, executed, rejected or canceled; or the mode changed, and then only Limiter,
// Outcome, Mode, At, Decision and DecisionState are set, to the current values. Each Started event is followed by an Executed
// one when the permit is released, and At is then the time of the release.
type Event struct {
	decision.Explanation

	// Took is the time that an executed task held its slot, from its start to the release of its permit; else 0.
	Took time.Duration
	// Abandoned is true for an executed task that ended without an answer: see [Permit.Abandon].
	Abandoned bool
	// Failed is true for an executed task that failed: see [Permit.Fail].
	Failed bool
}

// observeStart notifies the observer, if any, of a start. If the observer ends the goroutine (runtime.Goexit), no caller would
// own the permit, so observeStart releases it.
func (l *Limiter) observeStart(p Permit) Permit {
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
	l.observe(Event{Explanation: e})
	owned = true
	return p
}

// observeMode notifies the observer, if any, of the mode in force.
func (l *Limiter) observeMode() {
	if l.observer == nil {
		return
	}
	l.mu.Lock()
	r := l.rule
	l.mu.Unlock()
	l.observe(Event{Explanation: decision.Explanation{
		Limiter: l.name, Outcome: decision.ModeChanged, At: time.Now(), Mode: r.mode, Decision: r.decision,
		DecisionState: r.decisionState, ShedBelow: lowest,
	}})
}

// observe calls the observer and recovers its panic.
func (l *Limiter) observe(e Event) {
	defer l.contain()
	l.observer.Observe(e)
}

// errOf returns the context's error. A context whose Err panics counts as canceled.
func (l *Limiter) errOf(ctx context.Context) (err error) {
	defer l.contain()
	err = context.Canceled //nolint:wastedassign // it stays if Err panics
	return ctx.Err()
}

// doneOf is nil, which never ends a wait, if Done panics.
func (l *Limiter) doneOf(ctx context.Context) <-chan struct{} {
	defer l.contain()
	return ctx.Done()
}

// contain recovers a panic of foreign code that would otherwise lose another task's slot. It is deferred around every such
// call.
func (l *Limiter) contain() {
	if recover() != nil { //nolint:revive // it is deferred itself
		l.mu.Lock()
		l.observerPanics++
		l.mu.Unlock()
	}
}

// Observers combines several observers: each receives every event, in order, even if one before it panics. They allocate
// nothing themselves. No element may be nil: [New] returns an error.
type Observers []Observer

// Observe calls every observer. If several panic, the last panic propagates.
func (o Observers) Observe(e Event) {
	if len(o) == 0 {
		return
	}
	defer o[1:].Observe(e)
	o[0].Observe(e)
}

// checkObserver returns an error that names field, and the index of an element of Observers, if o is a nil pointer or function,
// or has an element that is nil.
func checkObserver(field string, o Observer) *decision.InvalidError {
	if typed := nilcheck.Optional(o); typed != "" {
		return invalidField(field, typed, "nil (no observer) or an observer")
	}
	all, _ := o.(Observers)
	for i, one := range all {
		element := fmt.Sprintf("%s[%d]", field, i)
		if one == nil {
			return invalidField(element, "nil", "an observer")
		}
		if err := checkObserver(element, one); err != nil {
			return err
		}
	}
	return nil
}
