// However an operation ends, its place comes back once: functions, starts and stages of every kind, one by one.

package admission

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// observed are gates with and without an observer: they take different ways through the code.
func observed(t *testing.T, cfg Config, f func(t *testing.T, g *Gate, log *recorder)) {
	t.Run("unobserved", func(t *testing.T) { f(t, mustNew(t, cfg), nil) })
	t.Run("observed", func(t *testing.T) {
		log := new(recorder)
		cfg.Observer = log
		f(t, mustNew(t, cfg), log)
	})
}

type recorder struct {
	mu     sync.Mutex
	events []Event
	do     func(Event)
}

func (r *recorder) Observe(e Event) {
	r.mu.Lock()
	r.events = append(r.events, e)
	do := r.do
	r.mu.Unlock()
	if do != nil {
		do(e)
	}
}

// ended is the only Released event there may be.
func (r *recorder) ended(t *testing.T) Event {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []Event
	for _, e := range r.events {
		if e.Kind == Released {
			found = append(found, e)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d Released events in %+v, want 1", len(found), r.events)
	}
	return found[0]
}

// atRest fails unless g is empty and has admitted n.
func atRest(t *testing.T, g *Gate, n uint64) {
	t.Helper()
	if s := g.Stats(); s.InFlight != 0 || s.Admitted != n || s.Released != n {
		t.Fatalf("%+v; want %d admitted and released", s, n)
	}
}

func TestA2_DoReleasesHoweverFnEnds(t *testing.T) {
	outcome := map[int]Outcome{returns: Succeeded, fails: Failed, panics: Aborted, exits: Aborted}
	for way, want := range outcome {
		for name, call := range map[string]func(g *Gate) error{
			"Do":   func(g *Gate) error { return g.Do(func() error { return end(way) }) },
			"Call": func(g *Gate) error { _, err := Call(g, func() (int, error) { return 1, end(way) }); return err },
		} {
			t.Run(name, func(t *testing.T) {
				for _, limit := range []int{1, 20} {
					observed(t, Config{Limit: limit}, func(t *testing.T, g *Gate, log *recorder) {
						err, thrown, exited := run(func() error { return call(g) })
						if errors.Is(err, errMine) != (way == fails) || (thrown == any(errMine)) != (way == panics) || exited != (way == exits) {
							t.Fatalf("way %d: err %v, panic %v, Goexit %v", way, err, thrown, exited)
						}
						atRest(t, g, 1)
						if log == nil {
							return
						}
						if e := log.ended(t); e.Outcome != want || !errors.Is(e.Err, err) {
							t.Fatalf("observed %+v, want %v", e, want)
						}
					})
				}
			})
		}
	}
}

// TestA2_PanicKeepsItsStack: the gate does not recover, so the trace shows where fn panicked.
func TestA2_PanicKeepsItsStack(t *testing.T) {
	g := mustNew(t, Config{Limit: 1})
	defer func() {
		if recover() == nil {
			t.Fatal("the panic did not come through")
		}
		buf := make([]byte, 1<<16)
		if s := string(buf[:runtime.Stack(buf, false)]); !strings.Contains(s, "panicsHere") {
			t.Fatalf("the stack lost its origin:\n%s", s)
		}
	}()
	_ = g.Do(panicsHere)
}

//go:noinline
func panicsHere() error { panic("here") }

func TestA2_CallReturnsTheResult(t *testing.T) {
	g := mustNew(t, Config{Limit: 1})
	if v, err := Call(g, func() (string, error) { return "v", nil }); v != "v" || err != nil {
		t.Fatal(v, err)
	}
	if v, err := Call(g, func() (string, error) { return "v", errMine }); v != "v" || !errors.Is(err, errMine) {
		t.Fatal(v, err)
	}
	g.Close()
	if v, err := Call(g, func() (string, error) { return "v", nil }); v != "" || !errors.Is(err, ErrRejected) {
		t.Fatal(v, err)
	}
}

// TestA2_StageEndings: success, failure and cancellation of a promise, alone and all three racing.
func TestA2_StageEndings(t *testing.T) {
	endings := []struct {
		how  func(p *Promise[int]) bool
		want Outcome
	}{
		{func(p *Promise[int]) bool { return p.Resolve(7) }, Succeeded},
		{func(p *Promise[int]) bool { return p.Reject(errMine) }, Failed},
		{func(p *Promise[int]) bool { return p.Cancel() }, Canceled},
	}
	for _, e := range endings {
		observed(t, Config{Limit: 2}, func(t *testing.T, g *Gate, log *recorder) {
			p := NewPromise[int]()
			s, err := Submit(g, func() Stage[int] { return p })
			if err != nil || s != Stage[int](p) {
				t.Fatalf("Submit = %v, %v", s, err)
			}
			if g.InFlight() != 1 {
				t.Fatal("not in flight while the stage has not ended")
			}
			if !e.how(p) || e.how(p) {
				t.Fatal("the first ending must win, the second must not")
			}
			atRest(t, g, 1)
			if log != nil && log.ended(t).Outcome != e.want {
				t.Fatalf("observed %+v", log.events)
			}
		})
	}
	observed(t, Config{Limit: 1}, func(t *testing.T, g *Gate, log *recorder) {
		for n := range uint64(300) {
			p := NewPromise[int]()
			if _, err := Submit(g, func() Stage[int] { return p }); err != nil {
				t.Fatal(err)
			}
			var won atomic.Int32
			together(len(endings), func(i int) {
				if endings[i].how(p) {
					won.Store(int32(endings[i].want))
				}
			})
			atRest(t, g, n+1)
			_, err := p.Wait(nil) //nolint:staticcheck // a nil ctx is allowed
			if got := outcomeOf(err); got != Outcome(won.Load()) {
				t.Fatalf("the visible result says %v, the winner was %v", got, Outcome(won.Load()))
			}
			if log != nil {
				if e := log.ended(t); e.Outcome != Outcome(won.Load()) {
					t.Fatalf("observed %v, the winner was %v", e.Outcome, Outcome(won.Load()))
				}
				log.events = nil
			}
		}
	})
}

// TestA2_HostileStages: every kind, on gates in every mode; a late callback must not free the next one's place.
func TestA2_HostileStages(t *testing.T) {
	for kind := range stageKinds {
		observed(t, Config{Limit: 1}, func(t *testing.T, g *Gate, log *recorder) {
			var s *hostile
			var thrown any
			_, thrown, _ = run(func() error {
				_, err := Submit(g, func() Stage[int] {
					if s = newHostile(kind); s == nil {
						return nil
					}
					return s
				})
				return err
			})
			if thrown != nil {
				t.Fatalf("Submit panicked: %v", thrown)
			}
			if kind == 1 {
				s.f(1, nil) // the honest one ends
			}
			atRest(t, g, 1)
			if log != nil {
				want := map[int]Outcome{0: Failed, 4: Failed, 5: Failed, 7: Aborted}[kind] // the others end in one of three ways
				if e := log.ended(t); want != 0 && (e.Outcome != want || e.Err == nil) {
					t.Fatalf("kind %d: observed %+v, want %v and why", kind, e, want)
				}
			}
			next, err := g.TryAcquire()
			if err != nil {
				t.Fatal(err)
			}
			if s != nil && s.f != nil {
				together(3, func(int) { s.f(1, errMine) })
			}
			if g.InFlight() != 1 || !next.Release() {
				t.Fatal("a late callback released the next admission")
			}
		})
	}
}

func TestA2_TypedNilStage(t *testing.T) {
	g := mustNew(t, Config{Limit: 1})
	var oe *ObserveError
	s, err := Submit(g, func() Stage[int] { return (*Promise[int])(nil) })
	if s != nil || !errors.As(err, &oe) {
		t.Fatalf("%v, %v; want an ObserveError", s, err)
	}
	atRest(t, g, 1)
}

// TestA4_ColdAndOnce: start runs exactly once, after the place was taken, and never when refused.
func TestA4_ColdAndOnce(t *testing.T) {
	observed(t, Config{Limit: 1}, func(t *testing.T, g *Gate, _ *recorder) {
		p := NewPromise[int]()
		ran := 0
		start := func() Stage[int] {
			if ran++; g.InFlight() != 1 {
				t.Error("start runs before its place is taken")
			}
			return p
		}
		if _, err := Submit(g, start); err != nil || ran != 1 {
			t.Fatal(err, ran)
		}
		for range 3 {
			if s, err := Submit(g, start); !errors.Is(err, ErrRejected) || s != nil || ran != 1 {
				t.Fatalf("refused: stage %v, error %v, started %d times", s, err, ran)
			}
		}
		p.Resolve(1)
		g.Close()
		if _, err := Submit(g, start); !errors.Is(err, ErrRejected) || ran != 1 {
			t.Fatal(err, ran)
		}
	})
}

// TestA10_CloseAndDrainOneByOne is the plain story: what is in flight stays, what comes is refused, Drain waits for it.
func TestA10_CloseAndDrainOneByOne(t *testing.T) {
	forLimits(t, func(t *testing.T, limit int) {
		g := mustNew(t, Config{Limit: limit})
		var held []Permit
		for range limit {
			p, err := g.TryAcquire()
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, p)
		}
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if err := g.Drain(ended); !errors.Is(err, context.Canceled) {
			t.Fatalf("Drain of a full gate with an ended ctx: %v", err)
		}
		g.Close()
		g.Close()
		if n := g.InFlight(); n != limit {
			t.Fatalf("Close touched what is in flight: %d of %d left", n, limit)
		}
		var r *RejectedError
		if _, err := g.TryAcquire(); !errors.As(err, &r) || r.Reason != Closed {
			t.Fatalf("after Close: %v", err)
		}
		drained := make(chan error)
		go func() { drained <- g.Drain(nil) }() //nolint:staticcheck // a nil ctx is allowed
		for i, p := range held {
			select {
			case err := <-drained:
				t.Fatalf("Drain returned (%v) with %d in flight", err, limit-i)
			default:
			}
			if !p.Release() {
				t.Fatal("Release after Close")
			}
		}
		if err := <-drained; err != nil {
			t.Fatal(err)
		}
		if err := g.Drain(ended); err != nil {
			t.Fatalf("Drain of an empty gate: %v, although it is empty", err)
		}
	})
}

// TestA10_DrainOfAnOpenGate: it may be used again afterwards, and again be spread over the cores.
func TestA10_DrainOfAnOpenGate(t *testing.T) {
	g := mustNew(t, Config{Limit: 3})
	p, _ := g.TryAcquire()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := g.Drain(ended); !errors.Is(err, context.Canceled) || len(g.waiters) != 0 || g.central.Load()&draining != 0 {
		t.Fatalf("a Drain that gave up: %v, %d waiters left", err, len(g.waiters))
	}
	drained := make(chan error)
	for range 3 {
		go func() { drained <- g.Drain(context.Background()) }()
	}
	for waiting := 0; waiting < 3; runtime.Gosched() {
		g.mu.Lock()
		waiting = len(g.waiters)
		g.mu.Unlock()
	}
	p.Release()
	for range 3 {
		if err := <-drained; err != nil {
			t.Fatal(err)
		}
	}
	for range 2 * calmReleases {
		if err := g.Do(func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if g.home.Load() == 0 {
		t.Fatal("after draining and a calm time, credits are still in the central word")
	}
}

// TestNoGate: a function that is given no gate says so.
func TestNoGate(t *testing.T) {
	ran := false
	_, call := Call(nil, func() (int, error) { ran = true; return 0, nil })
	_, submit := Submit(nil, func() Stage[int] { ran = true; return nil })
	for _, err := range []error{call, submit} {
		var invalid *InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "g" || ran {
			t.Errorf("%v, ran: %t", err, ran)
		}
	}
}
