// SPDX-License-Identifier: Apache-2.0

// Instants that a race would have to hit, made to happen.

package bulkhead

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// TestTheStateDecidesWhoAnswers ends a function in the very instant of its timeout, in both orders: whoever changes the
// state first answers, and the other one adds nothing.
func TestTheStateDecidesWhoAnswers(t *testing.T) {
	t.Run("the function is first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := &breaker{}
			s, a := single(t, CompartmentConfig{Guaranteed: 1, Timeout: time.Second, Breaker: b})
			// The function has returned, and its state says so; while the breaker is told, the time passes.
			b.onDone = func() { sleepFor(2 * time.Second) }
			v, err := Do(t.Context(), a, func(context.Context) (int, error) { return 7, nil })
			if v != 7 || err != nil || len(b.told) != 1 || b.told[0] != nil {
				t.Errorf("B4: %d, %v; told %v", v, err, b.told)
			}
			if c := a.Snapshot(); c.AbandonedTotal != 0 || c.Outcomes["succeeded"] != 1 {
				t.Errorf("B4: %+v", c)
			}
			rest(t, s, 0)
		})
	})
	t.Run("the timeout is first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := &breaker{}
			s, a := single(t, CompartmentConfig{Guaranteed: 1, Timeout: time.Second, Breaker: b})
			// The caller has given up; while the breaker is told, the function returns.
			b.onDone = func() { sleepFor(2 * time.Second) }
			_, err := Do(t.Context(), a, func(context.Context) (int, error) { sleepFor(2 * time.Second); return 7, nil })
			if !errors.Is(err, ErrTimeout) || len(b.told) != 1 || !errors.Is(b.told[0], ErrTimeout) {
				t.Errorf("B4: %v; told %v", err, b.told)
			}
			if c := a.Snapshot(); c.AbandonedTotal != 1 || c.Abandoned != 0 || c.Outcomes["timeout_running"] != 1 || c.Finished != 1 {
				t.Errorf("B4: %+v", c)
			}
			rest(t, s, 0)
		})
	})
}

// TestAnInnerRejectionIsAnErrorOfTheFunction: a function whose own, shorter deadline was missed elsewhere has failed, and
// its caller still waits for an answer.
func TestAnInnerRejectionIsAnErrorOfTheFunction(t *testing.T) {
	s, a, b := pair(t, CompartmentConfig{Guaranteed: 1}, CompartmentConfig{Guaranteed: 1})
	v, err := DoOr(t.Context(), a, func(ctx context.Context) (int, error) {
		ctx, cancel := context.WithDeadline(ctx, time.Now().Add(-time.Second))
		defer cancel()
		return Do(ctx, b, nothing)
	}, func(_ context.Context, cause error) (int, error) {
		wantRejected(t, cause, decision.DeadlineExceeded)
		return 42, nil
	})
	if v != 42 || err != nil {
		t.Errorf("B9: %d, %v", v, err)
	}
	rest(t, s, 0)
}

// TestADeadlineThatHasPassedIsTheCallersOwn, also while the context does not know yet.
func TestADeadlineThatHasPassedIsTheCallersOwn(t *testing.T) {
	s, a := single(t, CompartmentConfig{Guaranteed: 1})
	_, err := DoOr(overdue{t.Context()}, a, nothing, func(context.Context, error) (int, error) {
		return 0,
			errors.New("the fallback ran")
	})
	wantRejected(t, err, decision.DeadlineExceeded)
	rest(t, s, 0)
}

// overdue is a context whose deadline has passed and whose timer is late.
type overdue struct{ context.Context }

func (overdue) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }

// TestEquallyCriticalOwnersGetBackInProportion: the next slot is for whoever has least of what is guaranteed to it.
func TestEquallyCriticalOwnersGetBackInProportion(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		s := mustNew(t, Config{Total: 6, Compartments: []CompartmentConfig{
			{Name: "small", Guaranteed: 2, Lendable: 2, MaxQueue: 1}, {Name: "large", Guaranteed: 4, Lendable: 4, MaxQueue: 1},
			{Name: "borrower", Max: 6},
		}})
		small, large := s.Compartment("small"), s.Compartment("large")
		w.send(small, "small")
		w.send(large, "large")
		borrowers := w.fill(s.Compartment("borrower"), 4)
		later, first := w.send(small, "half of what is its own"), w.send(large, "a quarter")
		w.let(borrowers[0])
		if !first.runs() || !later.waits() {
			t.Error("B3: who had half was served before who had a quarter")
		}
		w.let(borrowers[1])
		rest(t, s, 6)
	})
}

// TestTheSameNumberAgainRules, and a decision that has been replaced does not go stale.
func TestTheSameNumberAgainRules(t *testing.T) {
	s, _ := single(t, CompartmentConfig{Guaranteed: 1})
	s.Apply(bound(7, 3))
	replaced := s.decided
	s.Apply(bound(7, 5))
	if got := s.Snapshot().EffectiveTotal; got != 5 {
		t.Errorf("B11: %d in total", got)
	}
	s.expire(replaced) // its timer was already running
	if s.Snapshot().Stale {
		t.Error("B11: stale")
	}
}
