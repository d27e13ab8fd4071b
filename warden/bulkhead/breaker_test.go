// SPDX-License-Identifier: Apache-2.0

// The circuit breaker (B6): when it is asked, and what it is told.

package bulkhead

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// breaker is a two-step circuit breaker that notes what it is told.
type breaker struct {
	open    error
	asked   int
	told    []error
	onAllow func()
	onDone  func()
}

func (b *breaker) Allow() (func(error), error) {
	b.asked++
	if b.onAllow != nil {
		b.onAllow()
	}
	if b.open != nil {
		return nil, b.open
	}
	return func(err error) {
		b.told = append(b.told, err)
		if b.onDone != nil {
			b.onDone()
		}
	}, nil
}

// stated is a breaker that says what state it is in.
type stated struct {
	breaker
	state string
}

func (b *stated) State() string { return b.state }

// reporting is a breaker that says whether it is open.
type reporting struct {
	breaker
	is bool
}

func (b *reporting) IsOpen() bool { return b.is }

// TestNobodyWaitsForAnOpenBreaker: a stuck function holds the only slot; once the breaker is open, no call waits for it,
// whichever way it says so.
func TestNobodyWaitsForAnOpenBreaker(t *testing.T) {
	says, is := &stated{state: "closed"}, &reporting{}
	for name, c := range map[string]struct {
		b     Breaker
		asked *int
		set   func(open bool)
	}{
		"State":  {says, &says.asked, func(open bool) { says.state = map[bool]string{false: "half-open", true: "open"}[open] }},
		"IsOpen": {is, &is.asked, func(open bool) { is.is = open }},
	} {
		inBubble(t, func(t *testing.T, w *crew) {
			s, a := single(t, CompartmentConfig{Guaranteed: 1, MaxQueue: 1, MaxWait: time.Second, Breaker: c.b})
			w.send(a, "stuck")
			waits := w.send(a, "waits")
			waits.cancel()
			synctest.Wait()
			c.set(true)
			_, err := Do(t.Context(), a, nothing)
			if reasonOf(err) != BreakerOpen || *c.asked != 1 {
				t.Errorf("B6: %s: %v; the breaker was asked %d times", name, err, *c.asked)
			}
			if c := a.Snapshot(); c.Rejected[string(BreakerOpen)] != 1 || c.Queued != 0 {
				t.Errorf("B6: %s: %+v", name, c)
			}
			c.set(false)
			if probe := w.send(a, "probe"); !probe.waits() {
				t.Errorf("B6: %s: a breaker that is not open rejects", name)
			}
			rest(t, s, 1)
		})
	}
}

// rejecting is a breaker that is open while it has an error.
type rejecting struct{ open error }

func (b *rejecting) IsOpen() bool                { return b.open != nil }
func (b *rejecting) Allow() (func(error), error) { return func(error) {}, b.open }

// A call that finds no slot is told the open breaker's own error too, once the breaker has rejected one with it.
func TestTheBreakersOwnError(t *testing.T) {
	b, own := &rejecting{}, errors.New("open since noon")
	inBubble(t, func(t *testing.T, w *crew) {
		_, a := single(t, CompartmentConfig{Guaranteed: 2, MaxQueue: 1, MaxWait: time.Second, Breaker: b})
		for _, slots := range []string{"a free slot", "no slot"} {
			w.send(a, "stuck")
			synctest.Wait()
			b.open = own
			if _, err := Do(t.Context(), a, nothing); reasonOf(err) != BreakerOpen || !errors.Is(err, own) {
				t.Errorf("B6: with %s: %v", slots, err)
			}
			b.open = nil
		}
	})
}

// A breaker that cannot say that it is open is refused where calls could queue behind it, and only there.
func TestABreakerThatCannotSayIsRefused(t *testing.T) {
	cfg := CompartmentConfig{Name: "a", Guaranteed: 1, MaxQueue: 1, Breaker: &breaker{}}
	_, err := New(Config{Total: 1, Compartments: []CompartmentConfig{cfg}})
	if wantInvalid(t, err, `Config.Compartments["a"].Breaker`); err != nil &&
		!strings.Contains(err.Error(), "a *bulkhead.breaker, which cannot say") {
		t.Errorf("B6: %v", err)
	}
	cfg.MaxQueue = 0
	if _, err := New(Config{Total: 1, Compartments: []CompartmentConfig{cfg}}); err != nil {
		t.Errorf("B6: %v", err)
	}
}

// broken is a breaker that panics when asked for its state.
type broken struct{ breaker }

func (*broken) State() string { panic("no state") }

func TestAStateThatPanicsSaysNothing(t *testing.T) {
	s, a := single(t, CompartmentConfig{Guaranteed: 1, Breaker: &broken{}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := Do(ctx, a, nothing); err != nil {
		t.Error(err)
	}
	if got := s.Snapshot(); got.ObserverPanics != 1 || got.Compartments[0].Admitted != 1 {
		t.Errorf("B6: %+v", got)
	}
	rest(t, s, 0)
}

func TestTheBreakerIsAskedAfterTheSlotAndToldOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		b := &stated{}
		s, a := single(t, CompartmentConfig{Guaranteed: 1, MaxQueue: 1, MaxWait: time.Second, Breaker: b})
		first := w.send(a, "first")
		waits := w.send(a, "waits")
		if _, err := Do(t.Context(), a, nothing); err == nil || b.asked != 1 {
			t.Errorf("B6: %v; the breaker was asked %d times", err, b.asked)
		}
		sleep(2 * time.Second) // waits times out
		if b.asked != 1 || len(b.told) != 0 || !errors.Is(waits.err, ErrTimeout) {
			t.Errorf("B6: asked %d, told %v, %v", b.asked, b.told, waits.err)
		}
		b.onDone = func() {
			if n := a.Snapshot().InFlight; n != 1 {
				t.Errorf("B6: told with %d in flight: the next could come before the result", n)
			}
		}
		w.let(first)
		broken := errors.New("broken")
		_, _ = Do(t.Context(), a, func(context.Context) (int, error) { return 0, broken })
		func() {
			defer func() { _ = recover() }()
			_, _ = Do(t.Context(), a, func(context.Context) (int, error) { panic(1) })
		}()
		if fmt.Sprint(b.told) != fmt.Sprint([]error{nil, broken, errPanicked}) {
			t.Errorf("B6: told %v", b.told)
		}
		rest(t, s, 0)
	})
}

func TestOpenBreaker(t *testing.T) {
	why := errors.New("open")
	b := &breaker{open: why}
	s, a := single(t, CompartmentConfig{Guaranteed: 1, Breaker: b})
	_, err := Do(t.Context(), a, nothing)
	if r := wantRejected(t, err, BreakerOpen); !errors.Is(err, why) || r.Limiter != "a" || r.Decision == nil {
		t.Error(err)
	}
	if c := a.Snapshot(); c.Rejected["breaker_open"] != 1 || c.Admitted != 0 || c.Finished != 0 || c.RejectionRate != 1 {
		t.Errorf("%+v", c)
	}
	rest(t, s, 0)
}

// TestVerdictOnTime: a timeout is a result as soon as the caller has it, a caller that goes away is none, and the
// function that returns later says nothing more.
func TestVerdictOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &breaker{}
		s, a := single(t, CompartmentConfig{Guaranteed: 3, Timeout: time.Second, Breaker: b})
		stuck := make(chan struct{})
		hangs := func(context.Context) (int, error) { <-stuck; return 0, nil }
		_, _ = Do(t.Context(), a, hangs)
		if len(b.told) != 1 || IsExcluded(b.told[0]) || !errors.Is(b.told[0], ErrTimeout) {
			t.Errorf("B6: told %v", b.told)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { sleepFor(time.Millisecond); cancel() }()
		_, err := Do(ctx, a, hangs)
		if len(b.told) != 2 || !IsExcluded(b.told[1]) || !errors.Is(err, context.Canceled) {
			t.Errorf("B6: told %v, %v", b.told, err)
		}
		close(stuck)
		synctest.Wait()
		_, _ = Do(t.Context(), a, nothing)
		func() {
			exited := make(chan struct{})
			go func() {
				defer close(exited)
				_, _ = Do(context.Background(), a, func(context.Context) (int, error) { runtime.Goexit(); return 0, nil })
			}()
			<-exited
		}()
		if len(b.told) != 4 || b.told[2] != nil || !errors.Is(b.told[3], errGoexit) {
			t.Errorf("B6: told %v", b.told)
		}
		rest(t, s, 0)
	})
}

// TestABreakerThatDoesNotAnswerIsARejection in the counters and to the observer, once for each call.
func TestABreakerThatDoesNotAnswerIsARejection(t *testing.T) {
	for name, leave := range map[string]func(){"panic": func() { panic("breaker") }, "Goexit": runtime.Goexit} {
		var seen recording
		b := &breaker{onAllow: leave}
		s := mustNew(t, Config{Total: 1, Observer: &seen, Compartments: []CompartmentConfig{{Name: "a", Guaranteed: 1, Breaker: b}}})
		a := s.Compartment("a")
		for _, call := range []func(){
			func() { _, _ = Do(t.Context(), a, nothing) },
			func() { _, _, _ = a.Acquire(t.Context()) },
			func() {
				_, _ = DoOr(t.Context(), a, nothing, func(context.Context, error) (int, error) { t.Error("a fallback"); return 0, nil })
			},
		} {
			left := make(chan struct{})
			go func() {
				defer close(left)
				defer func() { _ = recover() }()
				call()
				t.Errorf("%s: the caller was told something", name)
			}()
			<-left
		}
		b.onAllow, b.open = nil, errors.New("open")
		_, _ = Do(t.Context(), a, nothing)
		told := seen.of(Answered)
		for _, e := range told {
			if e.Outcome != decision.Rejected || e.Reason != BreakerOpen || reasonOf(e.Err) != BreakerOpen {
				t.Errorf("%s: %+v", name, e)
			}
		}
		if c := a.Snapshot(); len(told) != 4 || len(seen.events) != 4 || c.Rejected["breaker_open"] != 4 || c.Submitted != 4 ||
			c.Admitted != 0 {
			t.Errorf("%s: told %d times; %+v", name, len(told), c)
		}
		rest(t, s, 0)
	}
}

func TestIsExcluded(t *testing.T) {
	s, a := single(t, CompartmentConfig{Guaranteed: 1})
	_, p, _ := a.Acquire(t.Context())
	_, rejection := Do(t.Context(), a, nothing)
	p.Release(nil)
	for err, want := range map[error]bool{
		nil:                            false,
		errors.New("broken"):           false,
		&TimeoutError{}:                false,
		context.DeadlineExceeded:       false,
		context.Canceled:               true,
		rejection:                      true,
		fmt.Errorf("b: %w", rejection): true,
		&decision.ReentryError{}:       true,
		ErrUnknownCompartment:          true,
	} {
		if IsExcluded(err) != want {
			t.Errorf("B6: IsExcluded(%v) = %v", err, !want)
		}
	}
	rest(t, s, 0)
}
