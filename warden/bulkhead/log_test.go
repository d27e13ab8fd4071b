// The errors of a call in a log have all their pools, and the words that the counters have; several observers are told alike.

package bulkhead

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

func TestLogValues(t *testing.T) {
	why := &decision.Rejection{Explanation: decision.Explanation{Reason: TimeoutQueued, Decision: &decision.ControlDecision{Seq: 3}}}
	for _, c := range []struct {
		err  error
		want string
	}{
		{&TimeoutError{Compartment: "a", Phase: Queued, After: time.Second, Rejection: why}, "e.compartment=a e.phase=queued e.after=1s e.reason=timeout_queued e.rejection.limiter="},
		{&TimeoutError{Compartment: "a", Phase: Queued, After: time.Second, Rejection: why}, "e.rejection.reason=timeout_queued"},
		{&TimeoutError{Compartment: "a", Phase: Running, After: time.Minute}, "e.compartment=a e.phase=running e.after=1m0s e.reason=timeout_running\n"},
		{&BreakerOpenError{Compartment: "a", Err: errors.New("open")}, "e.compartment=a e.reason=breaker_open e.err=open\n"},
		{&ReentryError{Limiter: "a"}, "e.limiter=a e.reason=reentry\n"},
		{&conflictError{given: 1, current: 2}, "e.given=1 e.current=2\n"},
	} {
		var b bytes.Buffer
		slog.New(slog.NewTextHandler(&b, nil)).Info("m", "e", c.err)
		if !strings.Contains(b.String(), " "+c.want) {
			t.Errorf("%T: %q lacks %q", c.err, b.String(), c.want)
		}
		_, counted := c.err.(*conflictError) // no call was rejected
		if reason := " e.reason=" + string(reasonFor(c.err)); !counted && !strings.Contains(b.String(), "phase=running") && !strings.Contains(b.String(), reason) {
			t.Errorf("%T: %q lacks %q", c.err, b.String(), reason)
		}
	}
}

// TestObserversAreAllTold: one that panics keeps nothing from the others, and its panic is counted.
func TestObserversAreAllTold(t *testing.T) {
	var first, last []Kind
	note := func(kinds *[]Kind) Observer { return observerFunc(func(e Event) { *kinds = append(*kinds, e.Kind) }) }
	s := mustNew(t, Config{
		Total: 1, Compartments: []CompartmentConfig{{Name: "a", Guaranteed: 1}},
		Observer: Observers{note(&first), observerFunc(func(Event) { panic("observer") }), note(&last)},
	})
	must(Do(t.Context(), s.Compartment("a"), nothing))(t)
	if want := []Kind{Answered}; !slices.Equal(first, want) || !slices.Equal(last, want) {
		t.Errorf("told %v and %v", first, last)
	}
	if n := s.Snapshot().ObserverPanics; n != 1 {
		t.Errorf("%d panics counted, want 1", n)
	}
	Observers(nil).Observe(Event{})
}
