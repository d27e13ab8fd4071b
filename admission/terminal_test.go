// SPDX-License-Identifier: Apache-2.0

// However an operation ends, its slot comes back once: functions, starts and callbacks of every kind, one by one.

package admission_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/admission"
)

// atRest fails unless g is empty and has admitted n.
func atRest(t *testing.T, g *admission.Gate, n uint64) {
	t.Helper()
	if s := g.Stats(); s.InFlight != 0 || s.Admitted != n || s.Released != n {
		t.Fatalf("%+v; want %d admitted and released", s, n)
	}
}

// A slot comes back once, however a function or a start ends.
func TestReleasesHoweverItEnds(t *testing.T) {
	for way := range waysToEnd {
		for name, call := range map[string]func(g *admission.Gate) error{
			"Do": func(g *admission.Gate) error { return g.Do(func() error { return end(way) }) },
			"Call": func(g *admission.Gate) error {
				_, err := admission.Call(g, func() (int, error) { return 1, end(way) })
				return err
			},
			"Submit": func(g *admission.Gate) error {
				var kept func()
				defer func() { kept() }()
				return g.Submit(func(done func()) error { kept = done; return end(way) })
			},
		} {
			t.Run(name, func(t *testing.T) {
				for _, limit := range []int{1, 20} {
					g := mustNew(t, admission.Config{Limit: limit})
					err, thrown, exited := run(func() error { return call(g) })
					if errors.Is(err, errMine) != (way == fails) || (thrown == any(errMine)) != (way == panics) || exited != (way == exits) {
						t.Fatalf("A2: way %d: err %v, panic %v, Goexit %v", way, err, thrown, exited)
					}
					atRest(t, g, 1)
				}
			})
		}
	}
}

// TestPanicKeepsItsStack: the gate does not recover, so the trace shows where the caller's code panicked.
func TestPanicKeepsItsStack(t *testing.T) {
	g := mustNew(t, admission.Config{Limit: 1})
	for _, call := range []func(){
		func() { _ = g.Do(panicsHere) },
		func() { _ = g.Submit(func(func()) error { return panicsHere() }) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Fatal("A9: the panic did not come through")
				}
				buf := make([]byte, 1<<16)
				if s := string(buf[:runtime.Stack(buf, false)]); !strings.Contains(s, "panicsHere") {
					t.Fatalf("A9: the stack lost its origin:\n%s", s)
				}
			}()
			call()
		}()
	}
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

// TestDoneReleasesOnce: before start returns and after, twice, from many goroutines, after a start that failed; and a late one
// must not free the slot of the operation that came next.
func TestDoneReleasesOnce(t *testing.T) {
	for way := range waysToEnd {
		for times := range patterns {
			g := mustNew(t, admission.Config{Limit: 1})
			var done func()
			_, _, _ = run(func() error {
				return g.Submit(func(d func()) error {
					done = d
					callDone(done, times)
					return end(way)
				})
			})
			if inFlight := way == returns && times == 0; inFlight != (g.Stats().InFlight == 1) {
				t.Fatalf("A2: a start that ends in way %d after %d calls of done: %+v", way, times, g.Stats())
			}
			together(3, func(int) { done() })
			atRest(t, g, 1)
			next := must(g.TryAcquire())(t)
			together(3, func(int) { done() })
			if g.Stats().InFlight != 1 || !next.Release() {
				t.Fatal("A2: a late done released the next admission")
			}
		}
	}
}

// TestColdAndOnce: start runs exactly once, before Submit returns and after the slot was taken, and never when rejected.
func TestColdAndOnce(t *testing.T) {
	g := mustNew(t, admission.Config{Limit: 1})
	ran := 0
	var done func()
	start := func(d func()) error {
		if ran++; g.Stats().InFlight != 1 {
			t.Error("A4: start runs before its slot is taken")
		}
		done = d
		return nil
	}
	if err := g.Submit(start); err != nil || ran != 1 {
		t.Fatalf("A4: %v, started %d times", err, ran)
	}
	for range 3 {
		if err := g.Submit(start); !errors.Is(err, admission.ErrRejected) || ran != 1 {
			t.Fatalf("A4: rejected: error %v, started %d times", err, ran)
		}
	}
	done()
	g.Close()
	if err := g.Submit(start); !errors.Is(err, admission.ErrRejected) || ran != 1 {
		t.Fatalf("A4: closed: error %v, started %d times", err, ran)
	}
}

// TestCallersMayUseTheGate from inside their functions: no lock is held.
func TestCallersMayUseTheGate(t *testing.T) {
	g := mustNew(t, admission.Config{Limit: 2})
	use := func() error {
		permit, err := g.TryAcquire()
		if err != nil || g.Stats().InFlight != 2 || !permit.Release() {
			t.Errorf("A9: from inside: %v, %+v", err, g.Stats())
		}
		return errors.Join(g.Do(func() error { return nil }), g.Submit(func(done func()) error { done(); return nil }))
	}
	ended := make(chan error, 2)
	go func() {
		ended <- g.Do(use)
		ended <- g.Submit(func(done func()) error { defer done(); return use() })
	}()
	for range 2 {
		select {
		case err := <-ended:
			noError(t, err)
		case <-time.After(time.Minute):
			t.Fatal("A9: a function that uses its gate hangs")
		}
	}
	atRest(t, g, 8)
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
		if n := g.Stats().InFlight; n != limit {
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
