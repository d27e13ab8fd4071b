// What surrounds a call: the breaker (B6), the fallback (B9), permits, observers, health.

package bulkhead

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/limiter"
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

func TestB6_TheBreakerIsAskedAfterThePlaceAndToldOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		b := &breaker{}
		s, a := single(t, CompartmentConfig{Guaranteed: 1, MaxQueue: 1, MaxWait: time.Second, Breaker: b})
		first := w.send(a, "first")
		waits := w.send(a, "waits")
		if _, err := Do(t.Context(), a, nothing); err == nil || b.asked != 1 {
			t.Errorf("%v; the breaker was asked %d times", err, b.asked)
		}
		sleep(2 * time.Second) // waits times out
		if b.asked != 1 || len(b.told) != 0 || !errors.Is(waits.err, ErrTimeout) {
			t.Errorf("asked %d, told %v, %v", b.asked, b.told, waits.err)
		}
		b.onDone = func() {
			if n := a.Snapshot().InFlight; n != 1 {
				t.Errorf("told with %d in flight: the next could come before the verdict", n)
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
			t.Errorf("told %v", b.told)
		}
		rest(t, s, 0)
	})
}

func TestB5B6_OpenBreaker(t *testing.T) {
	why := errors.New("open")
	b := &breaker{open: why}
	s, a := single(t, CompartmentConfig{Guaranteed: 1, Breaker: b})
	_, err := Do(t.Context(), a, nothing)
	var open *BreakerOpenError
	if !errors.As(err, &open) || !errors.Is(err, ErrBreakerOpen) || !errors.Is(err, why) || open.Compartment != "a" {
		t.Error(err)
	}
	if c := a.Snapshot(); c.Rejected["breaker_open"] != 1 || c.Admitted != 0 || c.Finished != 0 || c.RejectionRate != 1 {
		t.Errorf("%+v", c)
	}
	rest(t, s, 0)
}

// TestB6_VerdictOnTime: a timeout is a verdict as soon as the caller has it, a caller that goes away is none, and the
// function that returns later says nothing more.
func TestB6_VerdictOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &breaker{}
		s, a := single(t, CompartmentConfig{Guaranteed: 3, Timeout: time.Second, Breaker: b})
		stuck := make(chan struct{})
		hangs := func(context.Context) (int, error) { <-stuck; return 0, nil }
		_, _ = Do(t.Context(), a, hangs)
		if len(b.told) != 1 || NoVerdict(b.told[0]) || !errors.Is(b.told[0], ErrTimeout) {
			t.Errorf("told %v", b.told)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { sleepFor(time.Millisecond); cancel() }()
		_, err := Do(ctx, a, hangs)
		if len(b.told) != 2 || !NoVerdict(b.told[1]) || !errors.Is(err, context.Canceled) {
			t.Errorf("told %v, %v", b.told, err)
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
			t.Errorf("told %v", b.told)
		}
		rest(t, s, 0)
	})
}

func TestB6_ABreakerThatPanicsKeepsNoPlace(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Minute} {
		bad := func() { panic("breaker") }
		for name, b := range map[string]*breaker{"Allow": {onAllow: bad}, "done": {onDone: bad}} {
			s, a := single(t, CompartmentConfig{Guaranteed: 1, Breaker: b, Timeout: timeout})
			for range 3 {
				func() {
					defer func() {
						if got := recover(); got != "breaker" {
							t.Errorf("%s: recovered %v", name, got)
						}
					}()
					_, _ = Do(t.Context(), a, nothing)
				}()
			}
			rest(t, s, 0)
		}
	}
}

// TestB5B6_ABreakerThatDoesNotAnswerIsARefusal in the counters and to the observer, once for each call.
func TestB5B6_ABreakerThatDoesNotAnswerIsARefusal(t *testing.T) {
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
			if e.Outcome != Refused || e.Reason != "breaker_open" || !errors.Is(e.Err, ErrBreakerOpen) {
				t.Errorf("%s: %+v", name, e)
			}
		}
		if c := a.Snapshot(); len(told) != 4 || len(seen.events) != 4 || c.Rejected["breaker_open"] != 4 || c.Submitted != 4 || c.Admitted != 0 {
			t.Errorf("%s: told %d times; %+v", name, len(told), c)
		}
		rest(t, s, 0)
	}
}

func TestB6_NoVerdict(t *testing.T) {
	s, a := single(t, CompartmentConfig{Guaranteed: 1})
	_, p, _ := a.Acquire(t.Context())
	_, rejection := Do(t.Context(), a, nothing)
	p.Release(nil)
	for err, want := range map[error]bool{
		nil:                            false,
		errors.New("broken"):           false,
		&TimeoutError{Phase: Running}:  false,
		context.DeadlineExceeded:       false,
		&TimeoutError{Phase: Queued}:   true,
		context.Canceled:               true,
		rejection:                      true,
		fmt.Errorf("b: %w", rejection): true,
		&BreakerOpenError{}:            true,
		&ReentryError{}:                true,
		ErrUnknownCompartment:          true,
	} {
		if NoVerdict(err) != want {
			t.Errorf("NoVerdict(%v) = %v", err, !want)
		}
	}
	rest(t, s, 0)
}

func TestB9_FallbackRules(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		broken := errors.New("broken")
		b := &breaker{}
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
				t.Error("the fallback runs inside of what it replaces")
			}
			return 42, nil
		}
		want := func(name string, degraded uint64, is error, v int, err error) {
			t.Helper()
			synctest.Wait()
			if got := a.Snapshot().Degraded; got != degraded || !errors.Is(cause, is) || (is == nil) != (err == nil && v != 42) {
				t.Errorf("%s: %d degraded, want %d; cause %v; answer %d, %v", name, got, degraded, cause, v, err)
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
		none := func(context.Context, error) (int, error) { t.Error("the fallback runs"); return 0, nil }
		ctx, cancel := context.WithCancel(t.Context())
		_, err = DoOr(ctx, a, func(context.Context) (int, error) { cancel(); return 0, broken }, none)
		if !errors.Is(err, broken) && !errors.Is(err, context.Canceled) {
			t.Errorf("cancel: %v", err)
		}
		if _, err = DoOr(ctx, a, nothing, none); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled before: %v", err)
		}
		if _, err = DoOr(t.Context(), nil, nothing, none); !errors.Is(err, ErrUnknownCompartment) {
			t.Errorf("unknown: %v", err)
		}
		func() {
			defer func() { _ = recover() }()
			_, _ = DoOr(t.Context(), a, func(context.Context) (int, error) { panic(1) }, none)
		}()
		_, err = Do(t.Context(), a, func(ctx context.Context) (int, error) { return DoOr(ctx, a, nothing, none) })
		if !errors.Is(err, ErrReentry) {
			t.Errorf("reentry: %v", err)
		}
		if n := len(seen.of(Degraded)); n != 4 {
			t.Errorf("%d times told", n)
		}
		rest(t, s, 0)
	})
}

// TestB6B9_AnInnerErrorIsAFailure: what fn returns is an error of fn, also if it is one that this package makes for another call,
// or for another compartment of the same name.
func TestB6B9_AnInnerErrorIsAFailure(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Minute} {
		for _, inner := range []error{
			&ReentryError{"a"}, &ReentryError{"b"}, &InvalidError{"fn", "nil", "a function"}, ErrUnknownCompartment,
			&TimeoutError{Compartment: "a", Phase: Running}, &TimeoutError{Compartment: "a", Phase: Queued}, context.DeadlineExceeded,
			&BreakerOpenError{"a", errors.New("open")}, context.Canceled,
		} {
			b := &breaker{}
			s, a := single(t, CompartmentConfig{Guaranteed: 1, Timeout: timeout, Breaker: b})
			var cause error
			_, err := DoOr(t.Context(), a, func(context.Context) (int, error) { return 0, inner },
				func(_ context.Context, why error) (int, error) { cause = why; return 1, nil })
			c := a.Snapshot()
			if err != nil || cause != inner || b.told[0] != inner || c.Outcomes["failed"] != 1 || c.Outcomes["timed_out"] != 0 || c.Degraded != 1 {
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

func TestB9_FallbacksAreBounded(t *testing.T) {
	s, a := single(t, CompartmentConfig{Guaranteed: 1, MaxFallback: 2})
	_, p, _ := a.Acquire(t.Context())
	inside := 0
	var nested func(context.Context, error) (int, error)
	nested = func(ctx context.Context, cause error) (int, error) {
		inside++
		return DoOr(ctx, a, nothing, nested)
	}
	_, err := DoOr(t.Context(), a, nothing, nested)
	wantRefused(t, err, limiter.QueueOverflow)
	c := a.Snapshot()
	if inside != 2 || c.FallbacksRefused != 1 || c.FallbacksInFlight != 0 || c.FallbacksFailed != 2 || c.Degraded != 0 {
		t.Errorf("%d ran; %+v", inside, c)
	}
	p.Release(nil)
	rest(t, s, 0)
}

func TestB9_AFallbackThatPanics(t *testing.T) {
	s, a := single(t, CompartmentConfig{Guaranteed: 1, MaxFallback: 1})
	for range 3 {
		func() {
			defer func() {
				if got := recover(); got != "fallback" {
					t.Errorf("recovered %v", got)
				}
			}()
			_, _ = DoOr(t.Context(), a, func(context.Context) (int, error) { return 0, errors.New("broken") },
				func(context.Context, error) (int, error) { panic("fallback") })
		}()
	}
	if c := a.Snapshot(); c.FallbacksFailed != 3 || c.FallbacksInFlight != 0 {
		t.Errorf("%+v", c)
	}
	rest(t, s, 0)
}

func TestPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &breaker{}
		s, a := single(t, CompartmentConfig{Guaranteed: 1, Timeout: time.Second, Breaker: b})
		ctx, p, err := a.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := a.Acquire(t.Context()); !errors.Is(err, limiter.ErrRejected) {
			t.Error(err)
		}
		<-ctx.Done()
		copied := p
		if !p.Release(ctx.Err()) || copied.Release(nil) || (Permit{}).Release(nil) {
			t.Error("a permit is released by the first of its copies, once")
		}
		ctx, p, _ = a.Acquire(t.Context())
		p.Release(nil)
		if ctx.Err() == nil {
			t.Error("the context outlives the permit")
		}
		c := a.Snapshot()
		if len(b.told) != 2 || !errors.Is(b.told[0], ErrTimeout) || c.Outcomes["timed_out"] != 1 || c.Outcomes["succeeded"] != 1 {
			t.Errorf("told %v; %+v", b.told, c)
		}
		rest(t, s, 0)
	})
}

func TestHealthAndRejectionRateAreOfTheLastMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a := single(t, CompartmentConfig{Guaranteed: 1, Criticality: limiter.Critical})
		refuse := func(n int) {
			_, p, _ := a.Acquire(t.Context())
			for range n {
				_, _ = Do(t.Context(), a, nothing)
			}
			p.Release(nil)
		}
		for range 18 {
			_, _ = Do(t.Context(), a, nothing)
		}
		refuse(1)
		if c := a.Snapshot(); c.RejectionRate != 0.05 || !c.Health.OK {
			t.Errorf("5 %% is allowed: %v, %+v", c.RejectionRate, c.Health)
		}
		refuse(1)
		if c := a.Snapshot(); c.RejectionRate <= 0.05 || c.Health.OK || !containsAll(c.Health.Reason, "critical", "9.1 %") {
			t.Errorf("%v, %+v", c.RejectionRate, c.Health)
		}
		sleep(30 * time.Second)
		refuse(2)
		if c := a.Snapshot(); c.RejectionRate != 4.0/25 {
			t.Errorf("%v", c.RejectionRate)
		}
		sleep(35 * time.Second)
		if c := a.Snapshot(); c.RejectionRate != 2.0/3 {
			t.Errorf("what is older than a minute still counts: %v", c.RejectionRate)
		}
		sleep(40 * time.Second)
		if c := a.Snapshot(); c.RejectionRate != 0 || !c.Health.OK || c.Execution.Count != 0 {
			t.Errorf("%v, %+v", c.RejectionRate, c.Execution)
		}
		rest(t, s, 0)
	})
}

func TestACallerThatGoesAwayWasNotRefused(t *testing.T) {
	_, a := single(t, CompartmentConfig{Guaranteed: 1, Criticality: limiter.Critical})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Do(ctx, a, nothing)
	wantRefused(t, err, limiter.Canceled)
	if c := a.Snapshot(); c.RejectionRate != 0 || !c.Health.OK || c.Left["canceled"] != 1 {
		t.Errorf("%+v", c)
	}
}

func TestHealthOfOthersIsNotJudged(t *testing.T) {
	_, a := single(t, CompartmentConfig{Guaranteed: 1, Criticality: limiter.High})
	_, p, _ := a.Acquire(t.Context())
	_, _ = Do(t.Context(), a, nothing)
	p.Release(nil)
	if c := a.Snapshot(); c.RejectionRate != 0.5 || !c.Health.OK {
		t.Errorf("%+v", c)
	}
}

func TestExecutionTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a := single(t, CompartmentConfig{Guaranteed: 1})
		for i := range 100 {
			_, _ = Do(t.Context(), a, func(context.Context) (int, error) { sleepFor(time.Duration(i+1) * time.Millisecond); return 0, nil })
		}
		e := a.Snapshot().Execution
		near := func(got, want time.Duration) bool { return got > want*7/8 && got < want*9/8 }
		if e.Count != 100 || e.Mean != 50500*time.Microsecond || !near(e.P50, 50*time.Millisecond) || !near(e.P90, 90*time.Millisecond) || !near(e.P99, 99*time.Millisecond) {
			t.Errorf("%+v", e)
		}
	})
}

// TestExecutionTimesOfMany runs so many that most are not timed: those that are stand for them.
func TestExecutionTimesOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a := single(t, CompartmentConfig{Guaranteed: 1})
		const n = 40_000
		for range n {
			_, _ = Do(t.Context(), a, nothing)
		}
		if e := a.Snapshot().Execution; e.Count < n*8/10 || e.Count > n*12/10 {
			t.Errorf("%+v", e)
		}
		if a.part.window.busy.Load() != true {
			t.Error("each one is timed")
		}
	})
}

func TestRangesMeet(t *testing.T) {
	for r := range ranges {
		if got := rangeOf(rangeBegin(r)); got != r {
			t.Errorf("range %d begins at %s, which is in %d", r, rangeBegin(r), got)
		}
		if r > 0 && rangeOf(rangeBegin(r)-1) != r-1 {
			t.Errorf("range %d does not end where %d begins", r-1, r)
		}
	}
	if rangeOf(1<<62) != ranges-1 {
		t.Error("the last range has no end")
	}
}

func TestAnObserverThatPanicsOrAsks(t *testing.T) {
	var s *Set
	s = mustNew(t, Config{Total: 1, Observer: observerFunc(func(Event) {
		s.Snapshot()
		_, _ = Do(context.Background(), s.Compartment("b"), nothing)
		panic("observer")
	}), Compartments: []CompartmentConfig{{Name: "a", Guaranteed: 1}, {Name: "b", Max: 1}}})
	s.observer = onlyOf{"a", s.observer}
	a := s.Compartment("a")
	if v, err := Do(t.Context(), a, func(context.Context) (int, error) { return 7, nil }); v != 7 || err != nil {
		t.Error(v, err)
	}
	s.Apply(bound(1, 1))
	if _, err := s.Resize(s.Plan()); err != nil {
		t.Error(err)
	}
	if n := s.Snapshot().ObserverPanics; n != 3 {
		t.Errorf("%d panics counted", n)
	}
	rest(t, s, 0)
}

type observerFunc func(Event)

func (f observerFunc) Observe(e Event) { f(e) }

// onlyOf passes on what is of one compartment or of none.
type onlyOf struct {
	name string
	to   Observer
}

func (o onlyOf) Observe(e Event) {
	if e.Compartment == "" || e.Compartment == o.name {
		o.to.Observe(e)
	}
}

func TestObserverSeesTheWaitAndTheReason(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		seen := &recording{}
		s := mustNew(t, Config{Total: 2, Observer: seen, Compartments: []CompartmentConfig{
			{Name: "a", Guaranteed: 1, MaxQueue: 1, Tenants: TenantsConfig{Max: 1}, MaxWait: time.Second},
		}})
		a := s.Compartment("a").Tenant("t")
		first := w.send(a, "first")
		second := w.send(a, "second")
		_, _ = Do(t.Context(), a, nothing)
		sleep(time.Millisecond)
		w.let(first)
		sleep(time.Millisecond)
		w.let(second)
		e := seen.of(Answered)
		if len(e) != 3 || e[0].Outcome != Refused || e[0].Reason != "queue_overflow" || e[0].Tenant != "t" || e[2].Waited != time.Millisecond ||
			e[2].Took != time.Millisecond || e[1].Took != time.Millisecond || e[1].Outcome != Succeeded || e[1].At.IsZero() {
			t.Errorf("%+v", e)
		}
		w.send(a, "third")
		_, _ = Do(t.Context(), a, nothing)
		if e = seen.of(Answered); e[3].Reason != "timeout_queued" || e[3].Waited != time.Second {
			t.Errorf("%+v", e[3])
		}
	})
}

func TestSnapshotIsJSON(t *testing.T) {
	s, a := single(t, CompartmentConfig{Guaranteed: 1, MaxQueue: 1, Tenants: TenantsConfig{Max: 1}})
	_, _ = Do(t.Context(), a.Tenant("x"), nothing)
	s.Apply(bound(1, 1))
	text, err := json.Marshal(s.Snapshot())
	if err != nil || !containsAll(string(text), `"compartments":[{"name":"a"`, `"succeeded":1`, `"tenants":{"keys":1`, `"effective_total":1`) {
		t.Errorf("%s, %v", text, err)
	}
}

func TestNilAndUnknown(t *testing.T) {
	s, _ := single(t, CompartmentConfig{Guaranteed: 1})
	c := s.Compartment("nobody")
	if c != nil || c.Name() != "" || c.Timeout() != 0 || c.Criticality() != 0 || c.Tenant("x") != nil || c.Stats().Submitted != 0 || c.Snapshot().Name != "" {
		t.Error("nil stands for a compartment that is not known")
	}
	if _, ok := c.TenantKey(); ok {
		t.Error("nil is no tenant")
	}
	if _, err := Do(t.Context(), c, nothing); !errors.Is(err, ErrUnknownCompartment) {
		t.Error(err)
	}
	if _, _, err := c.Acquire(t.Context()); !errors.Is(err, ErrUnknownCompartment) {
		t.Error(err)
	}
	a := s.Compartments()[0]
	if a.Name() != "a" || a.Tenant("x") != a || a.Stats().Target == 0 {
		t.Error(a.Name())
	}
}
