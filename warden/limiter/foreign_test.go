// SPDX-License-Identifier: Apache-2.0

// Code of others, called by a limiter: observers, contexts and functions that panic.

package limiter

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// faulty does what no Observer should.
type faulty struct {
	l     *Limiter
	exits bool
	calls int
}

func (f *faulty) Observe(e Event) {
	if f.calls++; f.exits && e.Outcome == decision.Started {
		runtime.Goexit()
	}
	_ = f.l.Stats() // no lock is held
	_, _ = f.l.TryAcquire(Task{Name: "from inside", Deadline: time.Now().Add(-1)})
	panic("Observe")
}

// recursionFree keeps faulty from observing what it does itself.
type recursionFree struct{ *faulty }

func (f recursionFree) Observe(e Event) {
	if e.Task.Name != "from inside" {
		f.faulty.Observe(e)
	}
}

// TestAnObserverChangesNothing has one that panics, uses the limiter, and ends the goroutine.
func TestAnObserverChangesNothing(t *testing.T) {
	f := &faulty{}
	l := mustNew(t, Config{Observer: recursionFree{f}, Initial: fixed(1)})
	f.l = l
	p := must(l.Acquire(t.Context(), Task{}))(t)
	_, err := l.TryAcquire(Task{})
	wantReason(t, err, decision.NoSlot)
	p.Release()
	if s := l.Stats(); s.ObserverPanics != 3 || f.calls != 3 || s.Executed != 1 || s.Running != 0 ||
		s.RejectedFor(decision.NoSlot) != 1 {
		t.Errorf("Q6: %+v after %d calls", s, f.calls)
	}
	f.exits = true
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = l.Acquire(context.Background(), Task{})
		t.Error("Q6: the observer did not end the goroutine")
	}()
	<-done
	if s := l.Stats(); s.Running != 0 || s.Executed != 2 {
		t.Errorf("Q6: a slot was lost: %+v", s)
	}
}

// asked counts how often a context is asked for its channel, which it makes on demand.
type asked struct {
	context.Context
	n      int
	panics bool
}

func (a *asked) Done() <-chan struct{} {
	if a.n++; a.panics {
		panic("Done")
	}
	return a.Context.Done()
}

// TestOnlyWhoWaitsNeedsAChannel, and a context that panics then takes no slot with it.
func TestOnlyWhoWaitsNeedsAChannel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		later, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		l := mustNew(t, Config{MaxQueue: 1, Initial: fixed(1)})
		ctx := &asked{Context: later}
		p := must(l.Acquire(ctx, Task{}))(t)
		waits := &asked{Context: later, panics: true}
		var waited Permit
		done := make(chan error, 1) // the goroutine ends though the test has failed
		go func() {
			var err error
			waited, err = l.Acquire(waits, Task{})
			done <- err
		}()
		synctest.Wait()
		_, err := l.Acquire(ctx, Task{})
		wantReason(t, err, decision.QueueOverflow)
		if ctx.n != 0 || waits.n != 1 {
			t.Errorf("asked for a channel %d times by who does not wait, %d times by who does", ctx.n, waits.n)
		}
		p.Release()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		waited.Release()
		if s := l.Stats(); s.ObserverPanics != 1 || s.Executed != 2 || s.Running != 0 || s.Queued != 0 {
			t.Errorf("Q6: %+v", s)
		}
	})
}

// TestDoReleases whatever its function does.
func TestDoReleases(t *testing.T) {
	l := mustNew(t, Config{Initial: fixed(1)})
	mine := errors.New("mine")
	for name, f := range map[string]func() error{
		"returns": func() error { return nil },
		"fails":   func() error { return mine },
		"panics":  func() error { panic(mine) },
		"exits":   func() error { runtime.Goexit(); return nil },
	} {
		var err error
		var thrown any
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { thrown = recover() }()
			_, err = Do(context.Background(), l, Task{}, func(context.Context) (int, error) { return 0, f() })
		}()
		<-done
		if (name == "fails") != (err == mine) || (name == "panics") != (thrown == mine) {
			t.Errorf("Q6: %s: %v, %v", name, err, thrown)
		}
		if s := l.Stats(); s.Running != 0 {
			t.Fatalf("Q6: %s: %+v", name, s)
		}
	}
	if s := l.Stats(); s.Executed != 4 {
		t.Errorf("Q6: %+v", s)
	}
}
