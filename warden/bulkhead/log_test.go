// SPDX-License-Identifier: Apache-2.0

// Several observers are told alike.

package bulkhead

import (
	"slices"
	"testing"
)

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
