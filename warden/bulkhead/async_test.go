// SPDX-License-Identifier: Apache-2.0

// Functions and their timeouts (B4): who is told what, and when the slot comes back.

package bulkhead

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

func TestTheSlotIsHeldUntilTheFunctionHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &recording{}
		s := mustNew(t, Config{Total: 1, Observer: seen,
			Compartments: []CompartmentConfig{{Name: "a", Guaranteed: 1, Timeout: time.Second}}})
		a := s.Compartment("a")
		stuck := make(chan struct{})
		began := time.Now()
		_, err := Do(t.Context(), a, func(context.Context) (int, error) { <-stuck; return 7, nil })
		var timeout *TimeoutError
		if !errors.As(err, &timeout) || errors.Is(err, decision.ErrRejected) || timeout.After != time.Second ||
			time.Since(began) != time.Second {
			t.Fatalf("B4: %v after %s", err, time.Since(began))
		}
		if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("B4: %v", err)
		}
		for range 3 { // a stuck dependency is handed nothing more
			_, err = Do(t.Context(), a, nothing)
			wantRejected(t, err, decision.QueueOverflow)
		}
		if c := a.Snapshot(); c.InFlight != 1 || c.Abandoned != 1 || c.AbandonedTotal != 1 || c.Outcomes["timeout_running"] != 1 ||
			c.Finished != 0 {
			t.Errorf("B4: %+v", c)
		}
		rest(t, s, 1)
		close(stuck)
		synctest.Wait()
		if c := a.Snapshot(); c.InFlight != 0 || c.Abandoned != 0 || c.AbandonedTotal != 1 || c.Finished != 1 {
			t.Errorf("B4: %+v", c)
		}
		rest(t, s, 0)
		if _, err := Do(t.Context(), a, nothing); err != nil {
			t.Error(err)
		}
		if len(seen.of(Abandoned)) != 1 || len(seen.of(Returned)) != 1 || len(seen.of(Answered)) != 5 {
			t.Errorf("B4: %+v", seen.events)
		}
	})
}

func TestAnHonestFunctionAndItsTimeoutGiveOneAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := single(t, CompartmentConfig{Guaranteed: 1, Timeout: time.Second})
		for range 20 { // whichever is first
			_, err := Do(t.Context(), a, func(ctx context.Context) (int, error) {
				<-ctx.Done()
				return 0,
					fmt.Errorf("query: %w", ctx.Err())
			})
			var timeout *TimeoutError
			if !errors.As(err, &timeout) || errors.Is(err, decision.ErrRejected) {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if c := a.Snapshot(); c.Outcomes["timeout_running"] != 20 || c.Finished != 20 || c.Abandoned != 0 {
			t.Errorf("B4: %+v", c)
		}
		rest(t, s, 0)
	})
}

func TestTimeoutCountsFromTheStart(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		_, a := single(t, CompartmentConfig{Guaranteed: 1, Timeout: time.Second, MaxQueue: 1, MaxWait: time.Minute})
		first := w.send(a, "first")
		second := w.send(a, "second")
		sleep(900 * time.Millisecond)
		w.let(first)
		sleep(900 * time.Millisecond)
		if !second.runs() {
			t.Errorf("B4: the wait counted: %v", second.err)
		}
		sleep(200 * time.Millisecond)
		if !errors.Is(second.err, ErrTimeout) {
			t.Error(second.err)
		}
		second.leave <- nil
	})
}

func panicsHere(v any) (int, error) { panic(v) }

func TestAfterItsCallerHasGoneAPanicIsContained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &recording{}
		s := mustNew(t, Config{Total: 2, Observer: seen,
			Compartments: []CompartmentConfig{{Name: "a", Guaranteed: 2, Timeout: time.Second}}})
		a := s.Compartment("a")
		for _, end := range []func(){func() { panic("late") }, runtime.Goexit} {
			_, err := Do(t.Context(), a, func(ctx context.Context) (int, error) { sleepFor(2 * time.Second); end(); return 0, nil })
			if !errors.Is(err, ErrTimeout) {
				t.Error(err)
			}
			sleep(2 * time.Second)
		}
		c := a.Snapshot()
		if c.LatePanics != 1 || c.InFlight != 0 || c.Abandoned != 0 || c.Outcomes["timeout_running"] != 2 {
			t.Errorf("B4: %+v", c)
		}
		back := seen.of(Returned)
		if len(back) != 2 || !containsAll(string(back[0].Stack), "AfterItsCallerHasGone") || back[1].Stack != nil ||
			back[0].Took != 2*time.Second {
			t.Errorf("B4: %+v", back)
		}
		if err := back[0].Err; !errors.Is(err, errPanicked) || !containsAll(err.Error(), "late") {
			t.Errorf("B4: nobody is told what it panicked with: %v", err)
		}
		rest(t, s, 0)
	})
}

func TestACallerThatGoesAwayNeedNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := single(t, CompartmentConfig{Guaranteed: 1, Timeout: time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		stuck := make(chan struct{})
		_, err := Do(ctx, a, func(context.Context) (int, error) { <-stuck; return 0, nil })
		if err != context.DeadlineExceeded { // its own, not one that is like it
			t.Errorf("B4: %v", err)
		}
		if c := a.Snapshot(); c.Outcomes["canceled"] != 1 || c.Abandoned != 1 || c.InFlight != 1 {
			t.Errorf("B4: %+v", c)
		}
		close(stuck)
		synctest.Wait()
		rest(t, s, 0)
	})
}
