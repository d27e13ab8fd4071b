// SPDX-License-Identifier: Apache-2.0

// The fallback (B9): for what it runs, and how many of them.

package bulkhead

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
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
			if _, err := Do(ctx, a, nothing); errors.Is(err, decision.ErrReentry) {
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
		want("breaker", 3, decision.ErrRejected, v, err)
		b.open = nil
		first := w.send(a, "first")
		w.send(a, "waits")
		v, err = DoOr(t.Context(), a, nothing, func(_ context.Context, err error) (int, error) { cause = err; return 42, nil })
		want("rejection", 4, decision.ErrRejected, v, err)
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
		if !errors.Is(err, decision.ErrReentry) {
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
			&decision.ReentryError{Limiter: "a"}, &decision.ReentryError{Limiter: "b"}, invalidField("fn", "nil", "a function"),
			ErrUnknownCompartment,
			&TimeoutError{Compartment: "a"}, context.DeadlineExceeded,
			&decision.Rejection{Explanation: decision.Explanation{Limiter: "a", Reason: BreakerOpen}}, context.Canceled,
		} {
			b := &breaker{}
			s, a := single(t, CompartmentConfig{Guaranteed: 1, Timeout: timeout, Breaker: b})
			var cause error
			_, err := DoOr(t.Context(), a, func(context.Context) (int, error) { return 0, inner },
				func(_ context.Context, why error) (int, error) { cause = why; return 1, nil })
			c := a.Snapshot()
			if err != nil || cause != inner || b.told[0] != inner || c.Outcomes["failed"] != 1 || c.Outcomes["timeout_running"] != 0 ||
				c.Degraded != 1 {
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

// A Do whose result the compartment's fallback does not have is refused before its function is called; DoOr takes another one.
func TestAFallbackOfAnotherType(t *testing.T) {
	s, a := single(t, CompartmentConfig{Guaranteed: 1,
		Fallback: FallbackOf(func(context.Context, error) (string, error) { return "some", nil })})
	_, err := Do(t.Context(), a, func(context.Context) (int, error) { t.Error("B9: called"); return 0, nil })
	var invalid *decision.InvalidError
	if !errors.As(err, &invalid) || err.Error() != `warden: bulkhead.Do: the result of fn in "a" is int; allowed: string, as of the compartment's Fallback; or call DoOr` {
		t.Errorf("B9: %v", err)
	}
	fails := func(context.Context) (int, error) { return 0, errors.New("broken") }
	if v, err := DoOr(t.Context(), a, fails, func(context.Context, error) (int, error) { return 7, nil }); v != 7 || err != nil {
		t.Errorf("B9: %d, %v", v, err)
	}
	if v, err := Do(t.Context(), a, func(context.Context) (string, error) { return "", errors.New("broken") }); v != "some" ||
		err != nil {
		t.Errorf("B9: %q, %v", v, err)
	}
	if c := a.Snapshot(); c.Degraded != 2 {
		t.Errorf("B9: %+v", c)
	}
	rest(t, s, 0)
	_, err = New(Config{Total: 1, Compartments: []CompartmentConfig{{Name: "a", Guaranteed: 1, Fallback: FallbackOf[int](nil)}}})
	wantInvalid(t, err, `Config.Compartments["a"].Fallback`)
}

// Work that acquired its slot by hand falls back under the same rules.
func TestRunFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := single(t, CompartmentConfig{Guaranteed: 1, MaxFallback: 1})
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		broken := errors.New("broken")
		inside, held, _ := a.Acquire(t.Context())
		_, _, full := a.Acquire(t.Context())
		_, _, reentered := a.Acquire(inside)
		ran := 0
		for _, c := range []struct {
			ctx        context.Context
			of         *Compartment
			cause, end error
			runs       bool
		}{
			{t.Context(), a, full, nil, true},
			{t.Context(), a, broken, nil, true},
			{t.Context(), a, broken, full, true},
			{t.Context(), a, reentered, nil, false},
			{t.Context(), nil, broken, nil, false},
			{gone, a, full, nil, false},
			{t.Context(), a, nil, nil, false},
		} {
			before := ran
			err := c.of.RunFallback(c.ctx, c.cause, func(_ context.Context, cause error) error {
				ran++
				if cause != c.cause {
					t.Errorf("B9: of %v, because of %v", c.cause, cause)
				}
				return c.end
			})
			want := c.cause
			if c.runs {
				want = c.end
			}
			if err != want || (ran > before) != c.runs {
				t.Errorf("B9: after %v: %v, want %v; it ran %d times", c.cause, err, want, ran-before)
			}
		}
		held.Release(nil)
		for _, err := range []error{a.RunFallback(t.Context(), broken, nil),
			a.RunFallback(nil, broken, func(context.Context, error) error { return nil })} { //nolint:staticcheck // on purpose
			if !errors.Is(err, decision.ErrInvalid) {
				t.Errorf("B9: %v", err)
			}
		}
		// One that blocks keeps its place, and nobody else waits for it.
		release := make(chan struct{})
		go func() {
			_ = a.RunFallback(t.Context(), broken, func(context.Context, error) error { <-release; return nil })
		}()
		synctest.Wait()
		if err := a.RunFallback(t.Context(), broken, func(context.Context, error) error { return nil }); err != broken {
			t.Errorf("B9: %v", err)
		}
		close(release)
		synctest.Wait()
		if c := a.Snapshot(); c.Degraded != 3 || c.FallbacksFailed != 1 || c.FallbacksRejected != 1 || c.FallbacksInFlight != 0 {
			t.Errorf("B9: %+v", c)
		}
		rest(t, s, 0)
	})
}
