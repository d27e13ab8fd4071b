// Promises end once, tell everybody, and lose no panic.

package admission_test

import (
	"bytes"
	"context"
	"errors"
	"log"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/admission"
)

// TestPropertyPromiseEndsOnce drives a promise and the obvious model of it.
func TestPropertyPromiseEndsOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p admission.Promise[int]
		ended, value, err := false, 0, error(nil)
		registered, told := 0, 0
		end := func(v int, e error, won bool) {
			if won == ended {
				t.Fatalf("A2: won %v although ended was %v", won, ended)
			}
			if won {
				ended, value, err = true, v, e
			}
		}
		for i := range rapid.IntRange(1, 20).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "op") {
			case 0:
				end(i, nil, p.Resolve(i))
			case 1:
				end(0, errMine, p.Reject(errMine))
			case 2:
				end(0, context.Canceled, p.Cancel())
			case 3:
				registered++
				p.OnDone(func(v int, e error) {
					if told++; v != value && ended || e != nil && v != 0 {
						t.Fatalf("A2: told %d, %v", v, e)
					}
				})
			case 4:
				select {
				case <-p.Done():
					if v, e := p.Wait(context.Background()); !ended || v != value || !errors.Is(e, err) {
						t.Fatalf("A2: Wait = %d, %v; want %d, %v", v, e, value, err)
					}
				default:
					if ended {
						t.Fatal("A2: ended, but Done is open")
					}
				}
			}
			if ended && told != registered || !ended && told != 0 {
				t.Fatalf("A2: %d of %d callbacks ran, ended %v", told, registered, ended)
			}
		}
	})
}

func TestPromiseRacing(t *testing.T) {
	for range 500 {
		p := new(admission.Promise[int])
		var told, won atomic.Int32
		together(6, func(i int) {
			switch i {
			case 0, 1:
				p.OnDone(func(int, error) { told.Add(1) })
			case 2:
				if _, err := p.Wait(context.Background()); err != nil && !errors.Is(err, errMine) && !errors.Is(err, context.Canceled) {
					t.Errorf("A2: Wait: %v", err)
				}
			default:
				if []func() bool{func() bool { return p.Resolve(1) }, func() bool { return p.Reject(errMine) }, p.Cancel}[i-3]() {
					won.Add(1)
				}
			}
		})
		if told.Load() != 2 || won.Load() != 1 {
			t.Fatalf("A2: %d callbacks, %d winners", told.Load(), won.Load())
		}
	}
}

// TestCallbackThatPanicsOrExits: the callbacks behind it run all the same, one of them may be a gate's.
func TestCallbackThatPanicsOrExits(t *testing.T) {
	for _, way := range []int{panics, exits} {
		g := mustNew(t, admission.Config{Limit: 1})
		p := new(admission.Promise[int])
		p.OnDone(func(int, error) { _ = end(way) })
		must(admission.Submit(g, func() admission.Stage[int] { return p }))(t)
		p.OnDone(func(int, error) { _ = end(way) })
		_, thrown, exited := run(func() error { p.Resolve(1); return nil })
		if (thrown != nil) != (way == panics) || exited != (way == exits) {
			t.Fatalf("A2: panic %v, Goexit %v", thrown, exited)
		}
		atRest(t, g, 1)
		if v, err := p.Wait(context.Background()); v != 1 || err != nil {
			t.Fatal(v, err)
		}
	}
}

// TestSlotIsFreeBeforeWaiters: whoever waited for the promise finds the slot given back.
func TestSlotIsFreeBeforeWaiters(t *testing.T) {
	var early admission.Promise[int]
	early.OnDone(func(int, error) {
		select {
		case <-early.Done():
			t.Error("A2: waiters were told before the callbacks")
		default:
		}
	})
	early.Resolve(1)
	g := mustNew(t, admission.Config{Limit: 1})
	for range 300 {
		var p *admission.Promise[int]
		if _, err := admission.Submit(g, func() admission.Stage[int] {
			p = admission.Async(func() (int, error) { return 1, nil })
			return p
		}); err != nil {
			t.Fatal(err)
		}
		if v, err := p.Wait(context.Background()); v != 1 || err != nil {
			t.Fatal(v, err)
		}
	}
}

func TestWaitEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(admission.Promise[int])
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error)
		go func() { _, err := p.Wait(ctx); got <- err }()
		synctest.Wait()
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Fatalf("Wait = %v; the promise was not canceled, the waiter was", err)
		}
		p.Resolve(3)
		if v, err := p.Wait(ctx); v != 3 || err != nil {
			t.Fatalf("an ended promise and an ended ctx: %v, %v", v, err)
		}
	})
}

func TestAsync(t *testing.T) {
	wait := func(fn func() (int, error)) (int, error) { return admission.Async(fn).Wait(context.Background()) }
	if v, err := wait(func() (int, error) { return 1, nil }); v != 1 || err != nil {
		t.Fatal(v, err)
	}
	if v, err := wait(func() (int, error) { return 2, errMine }); v != 2 || !errors.Is(err, errMine) {
		t.Fatal(v, err)
	}
	_, err := wait(func() (int, error) { return 0, end(panics) })
	var pe *admission.PanicError
	if !errors.As(err, &pe) || pe.Value != any(errMine) || !errors.Is(err, errMine) ||
		!bytes.Contains(pe.Stack, []byte("admission_test.end")) {
		t.Fatalf("%v\n%s", err, pe.Stack)
	}
	if _, err := wait(func() (int, error) { runtime.Goexit(); return 0, nil }); !errors.Is(err, admission.ErrGoexit) {
		t.Fatal(err)
	}
	var invalid *admission.InvalidError
	p := new(admission.Promise[int])
	if !p.Reject(nil) {
		t.Fatal("Reject(nil) did not end the promise")
	}
	if _, err := p.Wait(nil); !errors.As(err, &invalid) { //nolint:staticcheck // a nil ctx is allowed
		t.Fatalf("rejected with nil: %v", err)
	}
	p.OnDone(nil)
}

// TestAsyncPanicAfterCancel: nobody waits any more, so the log has it.
func TestAsyncPanicAfterCancel(t *testing.T) {
	var out bytes.Buffer
	before := log.Writer()
	log.SetOutput(&out)
	defer log.SetOutput(before)
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		p := admission.Async(func() (int, error) { <-goOn; panic("too late") })
		if !p.Cancel() {
			t.Fatal("Cancel lost")
		}
		close(goOn)
		synctest.Wait()
	})
	if s := out.String(); !strings.Contains(s, "too late") || !strings.Contains(s, "stage_test.go") {
		t.Fatalf("the log says %q", s)
	}
}
