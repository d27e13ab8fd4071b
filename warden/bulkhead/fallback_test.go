// The fallback (B9): for what it runs, and how many of them.

package bulkhead

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/limiter"
)

func TestFallbackRules(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		broken := errors.New("broken")
		b := &stated{}
		seen := &recording{}
		s := mustNew(t, Config{Total: 2, Observer: seen, Compartments: []CompartmentConfig{
			{Name: "a", Guaranteed: 1, MaxQueue: 1, MaxWait: time.Second, Timeout: time.Second, Breaker: b},
		}})
		a := s.Compartment("a")
		fails := func(context.Context) (int, error) { return 1, broken }
		hangs := func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }
		var cause error
		fallback := func(ctx context.Context, err error) (int, error) {
			cause = err
			if _, err := Do(ctx, a, nothing); errors.Is(err, ErrReentry) {
				t.Error("B9: the fallback runs inside of what it replaces")
			}
			return 42, nil
		}
		want := func(name string, degraded uint64, is error, v int, err error) {
			t.Helper()
			synctest.Wait()
			if got := a.Snapshot().Degraded; got != degraded || !errors.Is(cause, is) || (is == nil) != (err == nil && v != 42) {
				t.Errorf("B9: %s: %d degraded, want %d; cause %v; answer %d, %v", name, got, degraded, cause, v, err)
			}
			cause = nil
		}
		v, err := DoOr(t.Context(), a, nothing, fallback)
		want("success", 0, nil, v, err)
		v, err = DoOr(t.Context(), a, fails, fallback)
		want("error", 1, broken, v, err)
		v, err = DoOr(t.Context(), a, hangs, fallback)
		want("timeout", 2, ErrTimeout, v, err)
		b.open = broken
		v, err = DoOr(t.Context(), a, nothing, func(_ context.Context, err error) (int, error) { cause = err; return 42, nil })
		want("breaker", 3, ErrBreakerOpen, v, err)
		b.open = nil
		first := w.send(a, "first")
		w.send(a, "waits")
		v, err = DoOr(t.Context(), a, nothing, func(_ context.Context, err error) (int, error) { cause = err; return 42, nil })
		want("rejection", 4, limiter.ErrRejected, v, err)
		w.let(first)
		w.home()

		// And not:
		none := func(context.Context, error) (int, error) { t.Error("B9: the fallback runs"); return 0, nil }
		ctx, cancel := context.WithCancel(t.Context())
		_, err = DoOr(ctx, a, func(context.Context) (int, error) { cancel(); return 0, broken }, none)
		if !errors.Is(err, broken) && !errors.Is(err, context.Canceled) {
			t.Errorf("B9: cancel: %v", err)
		}
		if _, err = DoOr(ctx, a, nothing, none); !errors.Is(err, context.Canceled) {
			t.Errorf("B9: canceled before: %v", err)
		}
		if _, err = DoOr(t.Context(), nil, nothing, none); !errors.Is(err, ErrUnknownCompartment) {
			t.Errorf("B9: unknown: %v", err)
		}
		func() {
			defer func() { _ = recover() }()
			_, _ = DoOr(t.Context(), a, func(context.Context) (int, error) { panic(1) }, none)
		}()
		_, err = Do(t.Context(), a, func(ctx context.Context) (int, error) { return DoOr(ctx, a, nothing, none) })
		if !errors.Is(err, ErrReentry) {
			t.Errorf("B9: reentry: %v", err)
		}
		if n := len(seen.of(Degraded)); n != 4 {
			t.Errorf("B9: %d times told", n)
		}
		rest(t, s, 0)
	})
}

// TestAnInnerErrorIsAFailure: what fn returns is an error of fn, also if it is one that this package makes for another call,
// or for another compartment of the same name.
func TestAnInnerErrorIsAFailure(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Minute} {
		for _, inner := range []error{
			&ReentryError{Limiter: "a"}, &ReentryError{Limiter: "b"}, &InvalidError{"fn", "nil", "a function"}, ErrUnknownCompartment,
			&TimeoutError{Compartment: "a", Phase: Running}, &TimeoutError{Compartment: "a", Phase: Queued}, context.DeadlineExceeded,
			&BreakerOpenError{Compartment: "a", Err: errors.New("open")}, context.Canceled,
		} {
			b := &breaker{}
			s, a := single(t, CompartmentConfig{Guaranteed: 1, Timeout: timeout, Breaker: b})
			var cause error
			_, err := DoOr(t.Context(), a, func(context.Context) (int, error) { return 0, inner },
				func(_ context.Context, why error) (int, error) { cause = why; return 1, nil })
			c := a.Snapshot()
			if err != nil || cause != inner || b.told[0] != inner || c.Outcomes["failed"] != 1 || c.Outcomes["timeout_running"] != 0 || c.Degraded != 1 {
				t.Errorf("%T of the function: the cause is %v, the breaker was told %v; %+v", inner, cause, b.told, c)
			}
			_, p, _ := a.Acquire(t.Context())
			p.Release(inner)
			if c := a.Snapshot(); b.told[1] != inner || c.Outcomes["failed"] != 2 {
				t.Errorf("%T of a permit's work: the breaker was told %v; %+v", inner, b.told, c.Outcomes)
			}
			rest(t, s, 0)
		}
	}
}

func TestAFallbackThatPanics(t *testing.T) {
	s, a := single(t, CompartmentConfig{Guaranteed: 1, MaxFallback: 1})
	for range 3 {
		func() {
			defer func() {
				if got := recover(); got != "fallback" {
					t.Errorf("B9: recovered %v", got)
				}
			}()
			_, _ = DoOr(t.Context(), a, func(context.Context) (int, error) { return 0, errors.New("broken") },
				func(context.Context, error) (int, error) { panic("fallback") })
		}()
	}
	if c := a.Snapshot(); c.FallbacksFailed != 3 || c.FallbacksInFlight != 0 {
		t.Errorf("B9: %+v", c)
	}
	rest(t, s, 0)
}
