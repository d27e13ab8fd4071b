// However an operation ends, its slot comes back once: functions, starts and stages of every kind, one by one.

package admission_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stopbank/stopbank/admission"
)

// observed are gates with and without an observer: they take different ways through the code.
func observed(t *testing.T, cfg admission.Config, f func(t *testing.T, g *admission.Gate, log *recorder)) {
	t.Run("unobserved", func(t *testing.T) { f(t, mustNew(t, cfg), nil) })
	t.Run("observed", func(t *testing.T) {
		log := new(recorder)
		cfg.Observer = log
		f(t, mustNew(t, cfg), log)
	})
}

type recorder struct {
	mu     sync.Mutex
	events []admission.Event
	do     func(admission.Event)
}

func (r *recorder) Observe(e admission.Event) {
	r.mu.Lock()
	r.events = append(r.events, e)
	do := r.do
	r.mu.Unlock()
	if do != nil {
		do(e)
	}
}

// count is how many events of a kind there were.
func (r *recorder) count(kind admission.EventKind) (n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// ended is the only Released event there may be.
func (r *recorder) ended(t *testing.T) admission.Event {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []admission.Event
	for _, e := range r.events {
		if e.Kind == admission.Released {
			found = append(found, e)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d Released events in %+v, want 1", len(found), r.events)
	}
	return found[0]
}

// atRest fails unless g is empty and has admitted n.
func atRest(t *testing.T, g *admission.Gate, n uint64) {
	t.Helper()
	if s := g.Stats(); s.InFlight != 0 || s.Admitted != n || s.Released != n {
		t.Fatalf("%+v; want %d admitted and released", s, n)
	}
}

func TestDoReleasesHoweverFnEnds(t *testing.T) {
	outcome := map[int]admission.Outcome{
		returns: admission.Succeeded, fails: admission.Failed, panics: admission.Aborted, exits: admission.Aborted,
	}
	for way, want := range outcome {
		for name, call := range map[string]func(g *admission.Gate) error{
			"Do": func(g *admission.Gate) error { return g.Do(func() error { return end(way) }) },
			"Call": func(g *admission.Gate) error {
				_, err := admission.Call(g, func() (int, error) { return 1, end(way) })
				return err
			},
		} {
			t.Run(name, func(t *testing.T) {
				for _, limit := range []int{1, 20} {
					observed(t, admission.Config{Limit: limit}, func(t *testing.T, g *admission.Gate, log *recorder) {
						err, thrown, exited := run(func() error { return call(g) })
						if errors.Is(err, errMine) != (way == fails) || (thrown == any(errMine)) != (way == panics) || exited != (way == exits) {
							t.Fatalf("A2: way %d: err %v, panic %v, Goexit %v", way, err, thrown, exited)
						}
						atRest(t, g, 1)
						if log == nil {
							return
						}
						if e := log.ended(t); e.Outcome != want || !errors.Is(e.Err, err) {
							t.Fatalf("A2: observed %+v, want %v", e, want)
						}
					})
				}
			})
		}
	}
}

// TestPanicKeepsItsStack: the gate does not recover, so the trace shows where fn panicked.
func TestPanicKeepsItsStack(t *testing.T) {
	g := mustNew(t, admission.Config{Limit: 1})
	defer func() {
		if recover() == nil {
			t.Fatal("A2: the panic did not come through")
		}
		buf := make([]byte, 1<<16)
		if s := string(buf[:runtime.Stack(buf, false)]); !strings.Contains(s, "panicsHere") {
			t.Fatalf("A2: the stack lost its origin:\n%s", s)
		}
	}()
	_ = g.Do(panicsHere)
}

//go:noinline
func panicsHere() error { panic("here") }

func TestCallReturnsTheResult(t *testing.T) {
	g := mustNew(t, admission.Config{Limit: 1})
	if v, err := admission.Call(g, func() (string, error) { return "v", nil }); v != "v" || err != nil {
		t.Fatal(v, err)
	}
	if v, err := admission.Call(g, func() (string, error) { return "v", errMine }); v != "v" || !errors.Is(err, errMine) {
		t.Fatal(v, err)
	}
	g.Close()
	if v, err := admission.Call(g, func() (string, error) { return "v", nil }); v != "" || !errors.Is(err, admission.ErrRejected) {
		t.Fatal(v, err)
	}
}

// TestStageEndings: success, failure and cancellation of a promise, alone and all three racing.
func TestStageEndings(t *testing.T) {
	endings := []struct {
		how  func(p *admission.Promise[int]) bool
		want admission.Outcome
	}{
		{func(p *admission.Promise[int]) bool { return p.Resolve(7) }, admission.Succeeded},
		{func(p *admission.Promise[int]) bool { return p.Reject(errMine) }, admission.Failed},
		{func(p *admission.Promise[int]) bool { return p.Cancel() }, admission.Canceled},
	}
	for _, e := range endings {
		observed(t, admission.Config{Limit: 2}, func(t *testing.T, g *admission.Gate, log *recorder) {
			p := new(admission.Promise[int])
			s, err := admission.Submit(g, func() admission.Stage[int] { return p })
			if err != nil || s != admission.Stage[int](p) {
				t.Fatalf("A2: Submit = %v, %v", s, err)
			}
			if g.InFlight() != 1 {
				t.Fatal("A2: not in flight while the stage has not ended")
			}
			if !e.how(p) || e.how(p) {
				t.Fatal("A2: the first ending must win, the second must not")
			}
			atRest(t, g, 1)
			if log != nil && log.ended(t).Outcome != e.want {
				t.Fatalf("A2: observed %+v", log.events)
			}
		})
	}
	observed(t, admission.Config{Limit: 1}, func(t *testing.T, g *admission.Gate, log *recorder) {
		for n := range uint64(300) {
			p := new(admission.Promise[int])
			must(admission.Submit(g, func() admission.Stage[int] { return p }))(t)
			var won atomic.Int32
			together(len(endings), func(i int) {
				if endings[i].how(p) {
					won.Store(int32(endings[i].want))
				}
			})
			atRest(t, g, n+1)
			_, err := p.Wait(nil) //nolint:staticcheck // a nil ctx is allowed
			visible := admission.Succeeded
			if errors.Is(err, context.Canceled) {
				visible = admission.Canceled
			} else if err != nil {
				visible = admission.Failed
			}
			if visible != admission.Outcome(won.Load()) {
				t.Fatalf("A2: the visible result says %v, the winner was %v", visible, admission.Outcome(won.Load()))
			}
			if log != nil {
				if e := log.ended(t); e.Outcome != admission.Outcome(won.Load()) {
					t.Fatalf("A2: observed %v, the winner was %v", e.Outcome, admission.Outcome(won.Load()))
				}
				log.events = nil
			}
		}
	})
}

// TestHostileStages: every kind; a late callback must not free the next one's slot.
func TestHostileStages(t *testing.T) {
	for kind := range stageKinds {
		observed(t, admission.Config{Limit: 1}, func(t *testing.T, g *admission.Gate, log *recorder) {
			var s *hostile
			var thrown any
			_, thrown, _ = run(func() error {
				_, err := admission.Submit(g, func() admission.Stage[int] {
					if s = newHostile(kind); s == nil {
						return nil
					}
					return s
				})
				return err
			})
			if thrown != nil {
				t.Fatalf("A2: Submit panicked: %v", thrown)
			}
			if kind == 1 {
				s.f(1, nil) // the honest one ends
			}
			atRest(t, g, 1)
			if log != nil {
				want := map[int]admission.Outcome{ // the others end in one of three ways
					0: admission.Failed, 4: admission.Failed, 5: admission.Failed, 7: admission.Aborted,
				}[kind]
				if e := log.ended(t); want != 0 && (e.Outcome != want || e.Err == nil) {
					t.Fatalf("A2: kind %d: observed %+v, want %v and why", kind, e, want)
				}
			}
			next := must(g.TryAcquire())(t)
			if s != nil && s.f != nil {
				together(3, func(int) { s.f(1, errMine) })
			}
			if g.InFlight() != 1 || !next.Release() {
				t.Fatal("A2: a late callback released the next admission")
			}
		})
	}
}

func TestTypedNilStage(t *testing.T) {
	g := mustNew(t, admission.Config{Limit: 1})
	var pe *admission.PanicError
	s, err := admission.Submit(g, func() admission.Stage[int] { return (*admission.Promise[int])(nil) })
	if s != nil || !errors.As(err, &pe) {
		t.Fatalf("A2: %v, %v; want a PanicError", s, err)
	}
	atRest(t, g, 1)
}

// TestColdAndOnce: start runs exactly once, after the slot was taken, and never when rejected.
func TestColdAndOnce(t *testing.T) {
	observed(t, admission.Config{Limit: 1}, func(t *testing.T, g *admission.Gate, _ *recorder) {
		p := new(admission.Promise[int])
		ran := 0
		start := func() admission.Stage[int] {
			if ran++; g.InFlight() != 1 {
				t.Error("A4: start runs before its slot is taken")
			}
			return p
		}
		if _, err := admission.Submit(g, start); err != nil || ran != 1 {
			t.Fatal(err, ran)
		}
		for range 3 {
			if s, err := admission.Submit(g, start); !errors.Is(err, admission.ErrRejected) || s != nil || ran != 1 {
				t.Fatalf("A4: rejected: stage %v, error %v, started %d times", s, err, ran)
			}
		}
		p.Resolve(1)
		g.Close()
		if _, err := admission.Submit(g, start); !errors.Is(err, admission.ErrRejected) || ran != 1 {
			t.Fatal(err, ran)
		}
	})
}

// TestCloseAndDrainOneByOne is the plain story: what is in flight stays, what comes is rejected, Drain waits for it.
func TestCloseAndDrainOneByOne(t *testing.T) {
	forLimits(t, func(t *testing.T, limit int) {
		g := mustNew(t, admission.Config{Limit: limit})
		var held []admission.Permit
		for range limit {
			p := must(g.TryAcquire())(t)
			held = append(held, p)
		}
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if err := g.Drain(ended); !errors.Is(err, context.Canceled) {
			t.Fatalf("A10: Drain of a full gate with an ended ctx: %v", err)
		}
		g.Close()
		g.Close()
		if n := g.InFlight(); n != limit {
			t.Fatalf("A10: Close touched what is in flight: %d of %d left", n, limit)
		}
		var r *admission.RejectedError
		if _, err := g.TryAcquire(); !errors.As(err, &r) || r.Reason != admission.Closed {
			t.Fatalf("A10: after Close: %v", err)
		}
		drained := make(chan error)
		go func() { drained <- g.Drain(nil) }() //nolint:staticcheck // a nil ctx is allowed
		for i, p := range held {
			select {
			case err := <-drained:
				t.Fatalf("A10: Drain returned (%v) with %d in flight", err, limit-i)
			default:
			}
			if !p.Release() {
				t.Fatal("A10: Release after Close")
			}
		}
		noError(t, <-drained)
		if err := g.Drain(ended); err != nil {
			t.Fatalf("A10: Drain of an empty gate: %v, although it is empty", err)
		}
	})
}

// TestDrainOfAnOpenGate: a Drain that gives up leaves nothing behind, all that wait are let go together, and the gate
// may be used and drained again afterwards.
func TestDrainOfAnOpenGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := mustNew(t, admission.Config{Limit: 3})
		for range 2 {
			p, _ := g.TryAcquire()
			q, _ := g.TryAcquire()
			ended, cancel := context.WithCancel(t.Context())
			gaveUp, drained := make(chan error), make(chan error)
			go func() { gaveUp <- g.Drain(ended) }()
			for range 3 {
				go func() { drained <- g.Drain(t.Context()) }()
			}
			synctest.Wait()
			cancel()
			if err := <-gaveUp; !errors.Is(err, context.Canceled) {
				t.Fatalf("A10: a Drain whose ctx ended: %v", err)
			}
			p.Release()
			synctest.Wait()
			select {
			case err := <-drained:
				t.Fatalf("A10: Drain returned (%v) with one in flight", err)
			default:
			}
			q.Release()
			for range 3 {
				noError(t, <-drained)
			}
			noError(t, g.Do(func() error { return nil }))
		}
	})
}

// endsWith is a context that has ended, and runs a function as soon as somebody asks.
type endsWith struct {
	context.Context
	then func()
}

func (c endsWith) Done() <-chan struct{} { c.then(); return c.Context.Done() }

// TestDrainPrefersEmpty: when the gate has become empty and ctx has ended, Drain says that it is empty.
func TestDrainPrefersEmpty(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 {
		g := mustNew(t, admission.Config{Limit: 1})
		p, _ := g.TryAcquire()
		noError(t, g.Drain(endsWith{ended, func() { p.Release() }}))
	}
}
