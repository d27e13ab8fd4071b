// Events for an observer, which cannot change anything.

package admission

import (
	"context"
	"errors"
	"fmt"
)

// Observer receives a gate's decisions. Observe is called after the decision, synchronously, by the goroutine that made
// the call or ended the stage. No lock is held, so Observe may use the gate. It must be safe for concurrent use; events
// of different goroutines may arrive in another order than they happened. A panic in it is contained and counted in
// [Stats].ObserverPanics. An observed gate is slower by the cost of Observe and a few nanoseconds.
type Observer interface {
	Observe(Event)
}

// Event is one decision of a gate.
type Event struct {
	Gate    string    // Config.Name
	Kind    EventKind // what happened
	Reason  Reason    // of a Rejected event
	Outcome Outcome   // of a Released event: how the operation ended
	Err     error     // of a Released event: the operation's error, if it is known
}

// EventKind is the kind of an [Event].
type EventKind uint8

// The kinds of event.
const (
	Admitted EventKind = iota + 1
	Rejected
	Released
)

// String returns the kind in lower case.
func (k EventKind) String() string {
	return nameOf("EventKind", uint8(k), "", "admitted", "rejected", "released")
}

// Outcome is how an admitted operation ended.
type Outcome uint8

// The outcomes.
const (
	Unknown   Outcome = iota // a Permit was released: only its owner knows the result
	Succeeded                // no error
	Failed                   // an error; also a stage that could not be observed
	Canceled                 // an error that is context.Canceled
	Aborted                  // a panic or runtime.Goexit in Do's function or Submit's start, or Goexit in OnDone

	byError Outcome = 255 // to be told from Event.Err; no observer sees it
)

// String returns the outcome in lower case.
func (o Outcome) String() string {
	return nameOf("Outcome", uint8(o), "unknown", "succeeded", "failed", "canceled", "aborted")
}

func nameOf(kind string, v uint8, names ...string) string {
	if int(v) < len(names) && names[v] != "" {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", kind, v)
}

// outcomeOf says how an operation ended that reported err.
func outcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Succeeded
	case errors.Is(err, context.Canceled):
		return Canceled
	}
	return Failed
}

// observe calls the observer and contains its panic, or one of the error's Is method.
func (g *Gate) observe(e Event) {
	defer func() {
		if recover() != nil {
			g.mu.Lock()
			g.panics++
			g.mu.Unlock()
		}
	}()
	e.Gate = g.config.Name
	if e.Outcome == byError {
		e.Outcome = outcomeOf(e.Err)
	}
	g.config.Observer.Observe(e)
}

// observeRejection reports a rejection to the observer.
func (g *Gate) observeRejection(why *RejectedError) error {
	if g.config.Observer != nil {
		g.observe(Event{Kind: Rejected, Reason: why.Reason})
	}
	return why
}

// announce reports the admission p. If the observer ends the goroutine, nobody will own p: it is released.
func (p Permit) announce() {
	owned := false
	defer func() {
		if !owned {
			p.end(Aborted, nil)
		}
	}()
	p.gate.observe(Event{Kind: Admitted})
	owned = true
}

// doObserved is Do on an observed gate, once fn is admitted.
func (g *Gate) doObserved(fn func() error) (err error) {
	aborted := true
	defer func() {
		g.done()
		e := Event{Kind: Released, Outcome: Aborted}
		if !aborted {
			e.Outcome, e.Err = byError, err
		}
		g.observe(e)
	}()
	g.observe(Event{Kind: Admitted})
	err = fn()
	aborted = false
	return err
}
