// SPDX-License-Identifier: Apache-2.0

// What a call may count on around its function (B4, B6, B9, B10), for histories that nobody chose, in virtual time.

package bulkhead

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/decision"
)

// inVirtualTime runs a history that was drawn before, and fails rt with the first finding.
func inVirtualTime(t *testing.T, rt *rapid.T, history func(t *testing.T) string) {
	failed := ""
	synctest.Test(t, func(t *testing.T) { failed = history(t) })
	if failed != "" {
		rt.Fatal(failed)
	}
}

// The ways in which a function may end.
const (
	returns = iota
	fails
	panics
	exits
	waysToEnd
)

var errMine = errors.New("mine")

func endIn(way int) (int, error) {
	switch way {
	case fails:
		return 0, errMine
	case panics:
		return panicsHere(errMine)
	case exits:
		runtime.Goexit()
	}
	return 1, nil
}

// called says how a call ended: with an error, a panic, or a Goexit.
type called struct {
	err    error
	thrown any
	exited bool
	at     time.Time
}

// aside makes the call on a goroutine of its own.
func aside(call func() error) <-chan called {
	done := make(chan called, 1)
	go func() {
		c, returned := called{}, false
		defer func() {
			c.thrown = recover()
			c.exited = c.thrown == nil && !returned
			c.at = time.Now()
			done <- c
		}()
		c.err = call()
		returned = true
	}()
	return done
}

// A visit is a call that comes after a while and whose function takes its time, whatever its context says.
type visit struct {
	after, takes time.Duration
	way          int
}

func visits(most int) *rapid.Generator[[]visit] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) visit {
		return visit{ // even comes, odd goes: no two things happen at one instant
			time.Duration(2*rapid.IntRange(0, 6).Draw(t, "after")) * time.Millisecond,
			time.Duration(2*rapid.IntRange(0, 20).Draw(t, "takes")+1) * time.Millisecond,
			rapid.IntRange(0, waysToEnd-1).Draw(t, "way"),
		}
	}), 1, most)
}

// The model is a list of when each function begins and ends. At any instant as many slots are held as functions run. A caller is
// answered when its function ends or when its timeout has passed, whichever is first, and hears of a panic or a Goexit only if it
// still waits.
func TestPropertyASlotIsHeldUntilTheEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		slots := rapid.IntRange(1, 4).Draw(rt, "slots")
		timeout := time.Duration(rapid.SampledFrom([]int{0, 4, 10, 22}).Draw(rt, "timeout")) * time.Millisecond
		history := visits(25).Draw(rt, "visits")
		inVirtualTime(t, rt, func(t *testing.T) string {
			seen := &recording{}
			s := mustNew(t, Config{Total: slots, Observer: seen,
				Compartments: []CompartmentConfig{{Name: "a", Guaranteed: slots, Timeout: timeout}}})
			a := s.Compartment("a")
			var ends []time.Time
			late, abandoned, panicked := 0, 0, uint64(0)
			type pending struct {
				visit
				came   time.Time
				answer <-chan called
			}
			var calls []pending
			for i, v := range history {
				time.Sleep(v.after)
				synctest.Wait()
				now, inside := time.Now(), 0
				for _, end := range ends {
					if end.After(now) {
						inside++
					}
				}
				if got := a.Snapshot().InFlight; got != inside {
					return fmt.Sprintf("B4: before call %d, %d functions run and %d slots are held", i, inside, got)
				}
				answer := aside(func() error {
					_, err := Do(context.Background(), a, func(context.Context) (int, error) { sleepFor(v.takes); return endIn(v.way) })
					return err
				})
				synctest.Wait()
				if inside == slots {
					if c := <-answer; c.err == nil || !c.at.Equal(now) {
						return fmt.Sprintf("B4: call %d beside %d functions on %d slots: %+v", i, inside, slots, c)
					}
					continue
				}
				ends = append(ends, now.Add(v.takes))
				calls = append(calls, pending{v, now, answer})
				if timeout > 0 && v.takes > timeout {
					if abandoned++; v.way == panics {
						late++
					}
				}
			}
			for i, call := range calls {
				c := <-call.answer
				waited := call.takes
				if timeout > 0 && call.takes > timeout {
					var e *TimeoutError
					if waited = timeout; !errors.As(c.err, &e) || errors.Is(c.err, decision.ErrRejected) || c.thrown != nil || c.exited {
						return fmt.Sprintf("B4: call %d of %v: %+v, want a timeout after %v", i, call.takes, c, timeout)
					}
				} else if failed := sameEnd(c, call.way, timeout > 0); failed != "" {
					return fmt.Sprintf("B4: call %d: %s", i, failed)
				} else if call.way == panics || call.way == exits {
					panicked++
				}
				if got := c.at.Sub(call.came); got != waited {
					return fmt.Sprintf("B4: call %d was answered after %v, want %v", i, got, waited)
				}
			}
			sleep(time.Second)
			stacks := 0
			for _, e := range seen.of(Returned) {
				if len(e.Stack) > 0 && containsAll(string(e.Stack), "panicsHere") {
					stacks++
				}
			}
			if c := a.Snapshot(); c.InFlight != 0 || c.Abandoned != 0 || int(c.AbandonedTotal) != abandoned || int(c.LatePanics) != late ||
				stacks != late || c.Outcomes["panicked"] != panicked {
				return fmt.Sprintf("B4: %d abandoned, %d panicked after it and %d before, %d stacks seen; %+v", abandoned, late, panicked,
					stacks, c)
			}
			return ""
		})
	})
}

// sameEnd compares how a call ended with how its function did; apart is whether that had a goroutine of its own.
func sameEnd(c called, way int, apart bool) string {
	var p *PanicError
	switch {
	case c.exited != (way == exits), (c.thrown != nil) != (way == panics), (c.err != nil) != (way == fails), way == fails &&
		c.err != errMine:
		return fmt.Sprintf("%+v, want what its function did (%d)", c, way)
	case way == panics && !apart && c.thrown != errMine:
		return fmt.Sprintf("%v is not what was thrown", c.thrown)
	case way == panics && apart:
		if err, _ := c.thrown.(error); !errors.As(err, &p) || p.Value != errMine || !containsAll(string(p.Stack), "panicsHere") {
			return fmt.Sprintf("%v has not the value and the stack of the function", c.thrown)
		}
	}
	return ""
}

// An encounter is one call at a breaker in some mood.
type encounter struct {
	busy   bool   // somebody else has the only slot
	state  string // of the breaker
	answer int    // of Allow: yes, no, a panic; 3: yes, and a panic when it is told
	way    int    // how the function ends; then two more: the timeout, a caller that leaves
}

const (
	timesOut = waysToEnd + iota
	leaves
)

// The model has two lists: whether the breaker was asked, which needs a slot, and what it was told, which needs its consent.
func TestPropertyAskedWithASlotToldOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		script := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) encounter {
			return encounter{
				rapid.Bool().Draw(t, "busy"), rapid.SampledFrom([]string{"closed", "half-open", "open"}).Draw(t, "state"),
				rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3}).Draw(t, "answer"), rapid.IntRange(0, leaves).Draw(t, "way"),
			}
		}), 1, 12).Draw(rt, "script")
		waits, apart := rapid.Bool().Draw(rt, "waits"), rapid.Bool().Draw(rt, "a goroutine of its own")
		inVirtualTime(t, rt, func(t *testing.T) string {
			b, rejections := &stated{}, uint64(0)
			cfg := CompartmentConfig{Guaranteed: 1, Timeout: time.Second, Breaker: b}
			if waits {
				cfg.MaxQueue, cfg.MaxWait = 1, time.Second
			}
			if !apart {
				cfg.Timeout = 0
			}
			s, a := single(t, cfg)
			for i, e := range script {
				b.state, b.open, b.onAllow, b.onDone, b.asked, b.told = "closed", nil, nil, nil, 0, nil
				if !apart && e.way == timesOut {
					e.way = returns
				}
				var other Permit
				if e.busy {
					if _, p, err := a.Acquire(t.Context()); err == nil {
						other = p
					} else {
						return "B6: " + err.Error()
					}
				}
				b.asked, b.state = 0, e.state
				switch e.answer {
				case 1:
					b.open = errMine
				case 2:
					b.onAllow = func() { panic("breaker") }
				case 3:
					b.onDone = func() { panic("breaker") }
				}
				ctx, cancel := context.WithCancel(context.Background())
				c := <-aside(func() error {
					_, err := Do(ctx, a, func(ctx context.Context) (int, error) {
						switch e.way {
						case timesOut:
							<-ctx.Done()
							sleepFor(time.Second)
							return 0, errMine
						case leaves:
							cancel()
							sleepFor(time.Millisecond)
							return 0, ctx.Err()
						}
						return endIn(e.way)
					})
					return err
				})
				cancel()
				if !e.busy && e.answer == 0 && e.way == timesOut && (len(b.told) != 1 || !errors.Is(b.told[0], ErrTimeout)) {
					return fmt.Sprintf("B6: encounter %d, %+v: told %v at the timeout", i, e, b.told)
				}
				sleep(3 * time.Second)
				if b.onDone = nil; e.busy {
					other.Release(nil)
					b.told = b.told[:len(b.told)-1] // of the other
				}
				asked, told := 1, 0
				rejected := e.busy && e.state == "open" || !e.busy && (e.answer == 1 || e.answer == 2)
				switch {
				case e.busy:
					asked = 0
				case e.answer == 0 || e.answer == 3:
					told = 1
				}
				if rejected {
					rejections++
				}
				if b.asked != asked || len(b.told) != told {
					return fmt.Sprintf("B6: encounter %d, %+v: asked %d times, told %v; want %d, %d", i, e, b.asked, b.told, asked, told)
				}
				if p, ok := c.thrown.(*PanicError); ok {
					c.thrown = p.Value
				}
				panics := !e.busy && (e.answer == 2 || e.answer == 3)
				if panics != (c.thrown == any("breaker")) || rejected && !panics && reasonOf(c.err) != BreakerOpen {
					return fmt.Sprintf("B6: encounter %d, %+v: %+v", i, e, c)
				}
				if told == 1 && !rightVerdict(b.told[0], e.way) {
					return fmt.Sprintf("B6: encounter %d, %+v: told %v", i, e, b.told[0])
				}
				if got := a.Snapshot(); got.Rejected[string(BreakerOpen)] != rejections || got.InFlight != 0 {
					return fmt.Sprintf("B6: encounter %d, %+v: %+v", i, e, got)
				}
				if failed := disagree(s); failed != "" {
					return "B6: " + failed
				}
			}
			return ""
		})
	})
}

// rightVerdict is whether a breaker should be told err of a call whose function ended so.
func rightVerdict(err error, way int) bool {
	switch way {
	case returns:
		return err == nil
	case fails:
		return err == errMine
	case panics:
		return errors.Is(err, errPanicked)
	case exits:
		return errors.Is(err, errGoexit) || errors.Is(err, errPanicked)
	case timesOut:
		return errors.Is(err, ErrTimeout) && !IsExcluded(err)
	}
	return IsExcluded(err)
}

// The causes of a fallback, and what is none.
const (
	failed = iota
	failedInside
	timedOut
	rejectedByBreaker
	noSlot
	leftWhileRunning // from here on, none
	leftBefore
	panicked
	reentered
	unknownName
	kindsOfCause
)

// A fallback, of the call or of the compartment, runs for the first five causes, while fewer than MaxFallback do, holding no
// slot; its answer is the call's. Else the cause is.
func TestPropertyWhenAFallbackRuns(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		most, others := rapid.IntRange(1, 3).Draw(rt, "most"), rapid.IntRange(0, 3).Draw(rt, "others")
		kinds := rapid.SliceOfN(rapid.IntRange(0, kindsOfCause-1), 1, 8).Draw(rt, "causes")
		declines, configured := rapid.Bool().Draw(rt, "declines"), rapid.Bool().Draw(rt, "configured")
		others = min(others, most)
		inVirtualTime(t, rt, func(t *testing.T) string {
			b := &breaker{}
			var fallback func(context.Context, error) (int, error)
			cfg := CompartmentConfig{Guaranteed: 1, Timeout: time.Second, MaxFallback: most, Breaker: b}
			if configured {
				cfg.Fallback = FallbackOf(func(ctx context.Context, why error) (int, error) { return fallback(ctx, why) })
			}
			_, a := single(t, cfg)
			release, refused := make(chan struct{}), uint64(0)
			var done []<-chan called
			defer func() {
				close(release)
				for _, d := range done {
					<-d
				}
			}()
			for range others {
				done = append(done, aside(func() error {
					_, err := DoOr(context.Background(), a, func(context.Context) (int, error) { return endIn(fails) },
						func(context.Context, error) (int, error) { <-release; return 1, nil })
					return err
				}))
				synctest.Wait()
			}
			for i, kind := range kinds {
				b.open = nil
				ctx, cancel := context.WithCancel(context.Background())
				c, held := a, Permit{}
				fn := func(context.Context) (int, error) { return endIn(fails) }
				switch kind {
				case failedInside:
					fn = func(context.Context) (int, error) { return 0, &decision.ReentryError{Limiter: "a"} }
				case timedOut:
					fn = func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }
				case rejectedByBreaker:
					b.open = errMine
				case noSlot:
					_, held, _ = a.Acquire(context.Background())
				case leftWhileRunning:
					fn = func(context.Context) (int, error) { cancel(); return endIn(fails) }
				case leftBefore:
					cancel()
				case panicked:
					fn = func(context.Context) (int, error) { return endIn(panics) }
				case unknownName:
					c = nil
				}
				ran, slots, busy := 0, -1, -1
				var cause error
				fallback = func(_ context.Context, why error) (int, error) {
					ran++
					snap := a.Snapshot()
					cause, slots, busy = why, snap.InFlight, snap.FallbacksInFlight
					if declines {
						return 0, why
					}
					return 42, nil
				}
				call := func(ctx context.Context) (int, error) {
					if configured {
						return Do(ctx, c, fn)
					}
					return DoOr(ctx, c, fn, fallback)
				}
				var v int
				var err error
				end := <-aside(func() error {
					if kind != reentered {
						v, err = call(ctx)
						return nil
					}
					inner, p, rejected := a.Acquire(ctx)
					if rejected == nil {
						v, err = call(inner)
						p.Release(nil)
					}
					return rejected
				})
				cancel()
				inside := 0
				switch kind {
				case noSlot:
					held.Release(nil)
					inside = 1
				case timedOut:
					inside = max(0, slots) // the function holds its slot until it has returned, which may be a moment later
				}
				synctest.Wait()
				want := kind < leftWhileRunning && others < most
				switch {
				case (ran == 1) != want || ran > 1:
					return fmt.Sprintf("B9: cause %d, of kind %d, beside %d of %d fallbacks: it ran %d times", i, kind, others, most, ran)
				case want && (slots != inside || busy != others+1):
					return fmt.Sprintf("B9: cause %d, of kind %d: it ran with %d slots held, %d fallbacks", i, kind, slots, busy)
				case want && !declines && (v != 42 || err != nil), want && declines && err != cause, kind == panicked != (end.thrown != nil):
					return fmt.Sprintf("B9: cause %d, of kind %d: answered %d, %v, thrown %v", i, kind, v, err, end.thrown)
				case !want && kind != panicked && err == nil:
					return fmt.Sprintf("B9: cause %d, of kind %d, was dropped", i, kind)
				case kind == reentered && !errors.Is(err, decision.ErrReentry), kind == unknownName && !errors.Is(err, ErrUnknownCompartment):
					return fmt.Sprintf("B9: cause %d, of kind %d: %v", i, kind, err)
				}
				if kind < leftWhileRunning && !want {
					refused++
				}
				if got := a.Snapshot(); got.FallbacksInFlight != others || got.InFlight != 0 || got.FallbacksRejected != refused {
					return fmt.Sprintf("B9: cause %d, of kind %d: %+v", i, kind, got)
				}
			}
			return ""
		})
	})
}

// An entry is a step on the way inwards.
type entry struct {
	into     int
	detached bool // its context is cut off from the cancellation of the one outside
	permit   bool // by Acquire instead of Do
	tenant   string
}

// The model is the set of names on the way. A name that is in it is rejected; and when all have come out again, none is, whatever
// context is kept.
func TestPropertyReentryIsRejected(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	rapid.Check(t, func(rt *rapid.T) {
		path := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) entry {
			return entry{rapid.IntRange(0, 3).Draw(t, "into"), rapid.Bool().Draw(t, "detached"), rapid.Bool().Draw(t, "permit"),
				rapid.SampledFrom([]string{"x", "y"}).Draw(t, "tenant")}
		}), 1, 8).Draw(rt, "path")
		timeout := time.Duration(rapid.IntRange(0, 1).Draw(rt, "timeout")) * time.Minute
		inVirtualTime(t, rt, func(t *testing.T) string {
			var cfgs []CompartmentConfig
			for i, name := range names {
				c := CompartmentConfig{Name: name, Guaranteed: 10, Timeout: timeout}
				if i > 1 {
					c.Tenants, c.MaxQueue = TenantsConfig{Max: 10}, 1
				}
				cfgs = append(cfgs, c)
			}
			s := mustNew(t, Config{Total: 40, Compartments: cfgs})
			enter := func(e entry) *Compartment {
				c := s.Compartment(names[e.into])
				if e.into > 1 {
					c = c.Tenant(e.tenant)
				}
				return c
			}
			wrong := ""
			var kept []context.Context
			var on []string
			var walk func(ctx context.Context, path []entry)
			inside := func(ctx context.Context, e entry, rest []entry) {
				kept = append(kept, ctx)
				on = append(on, names[e.into])
				walk(ctx, rest)
				on = on[:len(on)-1]
			}
			walk = func(ctx context.Context, path []entry) {
				if len(path) == 0 {
					return
				}
				e, ran := path[0], false
				if e.detached {
					ctx = context.WithoutCancel(ctx)
				}
				var err error
				if e.permit {
					var in context.Context
					var p Permit
					if in, p, err = enter(e).Acquire(ctx); err == nil {
						ran = true
						inside(in, e, path[1:])
						p.Release(nil)
					}
				} else {
					_, err = Do(ctx, enter(e), func(in context.Context) (int, error) { ran = true; inside(in, e, path[1:]); return 0, nil })
				}
				var reentry *decision.ReentryError
				again := slices.Contains(on, names[e.into])
				if ran == again || again && (!errors.As(err, &reentry) || reentry.Limiter != names[e.into]) || !again && err != nil {
					wrong = fmt.Sprintf("B10: into %q from inside %v: ran %v, %v", names[e.into], on, ran, err)
				}
				if again {
					walk(ctx, path[1:])
				}
			}
			walk(context.Background(), path)
			for _, ctx := range kept {
				for i := range names {
					if _, err := Do(context.WithoutCancel(ctx), enter(entry{into: i, tenant: "x"}), nothing); err != nil && wrong == "" {
						wrong = fmt.Sprintf("B10: %q with the context of what has ended: %v", names[i], err)
					}
				}
			}
			return wrong
		})
	})
}
