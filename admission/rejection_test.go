// What a rejection costs and carries, what waits (nothing), what a broken observer may do (nothing), what nonsense gets.

package admission_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/stopbank/stopbank/admission"
)

// TestNothingAllocates covers the calls that promise it, and permits up to as many as were out before.
func TestNothingAllocates(t *testing.T) {
	for _, limit := range []int{1, 5, 100} {
		cfg := admission.Config{Limit: limit}
		open, full, shut := mustNew(t, cfg), mustNew(t, cfg), mustNew(t, cfg)
		for range limit {
			_, _ = full.TryAcquire()
		}
		shut.Close()
		fn := func() error { return nil }
		ps := make([]admission.Permit, limit)
		for name, f := range map[string]func(){
			"Do":                  func() { _ = open.Do(fn) },
			"Call":                func() { _, _ = admission.Call(open, func() (int, error) { return limit, nil }) },
			"TryAcquire":          func() { p, _ := open.TryAcquire(); p.Release() },
			"rejection":           func() { _, _ = full.TryAcquire() },
			"rejection by Do":     func() { _ = full.Do(fn) },
			"rejection, closed":   func() { _, _ = shut.TryAcquire() },
			"rejection by Submit": func() { _, _ = admission.Submit(full, func() admission.Stage[int] { return nil }) },
			"InFlight":            func() { open.InFlight(); full.InFlight() },
			"Stats":               func() { open.Stats(); full.Stats() },
			"a stale copy":        func() { p, _ := open.TryAcquire(); p.Release(); p.Release() },
			"all slots": func() {
				for i := range ps {
					ps[i], _ = open.TryAcquire()
				}
				for _, p := range ps {
					p.Release()
				}
			},
		} {
			if n := testing.AllocsPerRun(200, f); n != 0 {
				t.Errorf("A6: limit %d, %s: %v allocations", limit, name, n)
			}
		}
	}
}

// TestBrokenObserver: panics, Goexit and re-entrance change no count and no answer.
func TestBrokenObserver(t *testing.T) {
	log := &recorder{do: func(admission.Event) { panic("observer") }}
	g := mustNew(t, admission.Config{Limit: 1, Observer: log})
	p, err := g.TryAcquire()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Do(func() error { return nil }); !errors.Is(err, admission.ErrRejected) {
		t.Fatal(err)
	}
	if !p.Release() || p.Release() {
		t.Fatal("A9: Release")
	}
	if err := g.Do(func() error { return errMine }); !errors.Is(err, errMine) {
		t.Fatal(err)
	}
	if _, thrown, _ := run(func() error { return g.Do(func() error { return end(panics) }) }); thrown != any(errMine) {
		t.Fatalf("A9: fn's panic became %v", thrown)
	}
	atRest(t, g, 3)
	if n := g.Stats().ObserverPanics; n != uint64(len(log.events)) || n != 7 {
		t.Fatalf("A9: %d panics counted, %d events", n, len(log.events))
	}

	log.do = func(admission.Event) { runtime.Goexit() }
	for _, f := range []func() error{
		func() error { _, err := g.TryAcquire(); return err },
		func() error { return g.Do(func() error { return nil }) },
		func() error {
			_, err := admission.Submit(g, func() admission.Stage[int] { return new(admission.Promise[int]) })
			return err
		},
	} {
		if _, _, exited := run(f); !exited || g.InFlight() != 0 {
			t.Fatalf("A9: an observer that exits: exited %v, %d in flight", exited, g.InFlight())
		}
	}

	log.do = func(e admission.Event) {
		if e.Kind == admission.Admitted && g.InFlight() != 1 || e.Kind == admission.Released && g.InFlight() != 0 {
			t.Errorf("A9: %v observed with %d in flight", e.Kind, g.InFlight())
		}
		if e.Kind == admission.Released {
			log.do = nil
			if p, err := g.TryAcquire(); err != nil || !p.Release() {
				t.Errorf("A9: the observer could not use the gate: %v", err)
			}
		}
	}
	if err := g.Do(func() error { return nil }); err != nil || log.do != nil {
		t.Fatal(err)
	}
}

// TestHostileError: an error whose Is panics reaches the caller, and only the observer's part of the work suffers.
func TestHostileError(t *testing.T) {
	g := mustNew(t, admission.Config{Limit: 1, Observer: new(recorder)})
	if err, thrown, _ := run(func() error { return g.Do(func() error { return hostileError{} }) }); thrown != nil || err == nil {
		t.Fatal(err, thrown)
	}
	if s := g.Stats(); s.InFlight != 0 || s.ObserverPanics != 1 {
		t.Fatalf("A9: %+v", s)
	}
}

type hostileError struct{}

func (hostileError) Error() string { return "hostile" }
func (hostileError) Is(error) bool { panic("Is") }

// TestEventsTellWhatHappened: kinds, names, reasons, in order.
func TestEventsTellWhatHappened(t *testing.T) {
	log := new(recorder)
	g := mustNew(t, admission.Config{Name: "db", Limit: 1, Observer: log})
	p, _ := g.TryAcquire()
	_, _ = g.TryAcquire()
	p.Release()
	p.Release()
	failure := errors.New("failed")
	for _, err := range []error{context.Canceled, failure, nil} {
		_ = g.Do(func() error { return err })
	}
	g.Close()
	_, _ = g.TryAcquire()
	want := []admission.Event{
		{Gate: "db", Kind: admission.Admitted},
		{Gate: "db", Kind: admission.Rejected, Reason: admission.Saturated},
		{Gate: "db", Kind: admission.Released, Outcome: admission.Unknown},
		{Gate: "db", Kind: admission.Admitted},
		{Gate: "db", Kind: admission.Released, Outcome: admission.Canceled, Err: context.Canceled},
		{Gate: "db", Kind: admission.Admitted},
		{Gate: "db", Kind: admission.Released, Outcome: admission.Failed, Err: failure},
		{Gate: "db", Kind: admission.Admitted},
		{Gate: "db", Kind: admission.Released, Outcome: admission.Succeeded},
		{Gate: "db", Kind: admission.Rejected, Reason: admission.Closed},
	}
	if len(log.events) != len(want) {
		t.Fatalf("A8: %+v", log.events)
	}
	for i, e := range log.events {
		if e != want[i] {
			t.Errorf("A8: event %d is %+v, want %+v", i, e, want[i])
		}
	}
	if s := fmt.Sprint(admission.Admitted, admission.Rejected, admission.Released, admission.Aborted, admission.EventKind(9),
		admission.Reason(9)); s != "admitted rejected released aborted EventKind(9) Reason(9)" {
		t.Fatal(s)
	}
}

func TestBadInput(t *testing.T) {
	var invalid *admission.InvalidError
	if g, err := admission.New(admission.Config{Limit: 1, Observer: (*recorder)(nil)}); g != nil || !errors.As(err, &invalid) || invalid.Field != "Config.Observer" {
		t.Errorf("a nil *recorder: %v", err)
	}
	for _, limit := range []int{0, -1, math.MinInt} { // 0: forgotten, because a gate that rejects everything is a closed one
		g, err := admission.New(admission.Config{Limit: limit})
		if g != nil || !errors.Is(err, admission.ErrInvalid) || !errors.As(err, &invalid) ||
			invalid.Field != "Config.Limit" || invalid.Value != limit {
			t.Fatalf("New(Limit %d) = %v, %v", limit, g, err)
		}
		for _, part := range []string{"Config.Limit", fmt.Sprint(limit), "1 or more", "Close"} {
			if !strings.Contains(err.Error(), part) {
				t.Fatalf("%q does not say %q", err, part)
			}
		}
	}

	g := mustNew(t, admission.Config{Limit: 1})
	errs := []error{g.Do(nil)}
	_, err := admission.Call[int](g, nil)
	errs = append(errs, err)
	_, err = admission.Submit[int](g, nil)
	errs = append(errs, err)
	_, err = admission.Async[int](nil).Wait(context.Background())
	errs = append(errs, err)
	for i, err := range errs {
		if !errors.As(err, &invalid) || invalid.Allowed == "" {
			t.Errorf("nil function %d: %v", i, err)
		}
	}
	if s := g.Stats(); s.Admitted != 0 || s.Rejected != 0 {
		t.Fatalf("nonsense was counted: %+v", s)
	}
}

// TestNoGate: nothing runs behind a nil *Gate, and the zero Gate is one of limit 0.
func TestNoGate(t *testing.T) {
	ran := false
	do := (*admission.Gate)(nil).Do(func() error { ran = true; return nil })
	_, call := admission.Call(nil, func() (int, error) { ran = true; return 0, nil })
	_, submit := admission.Submit(nil, func() admission.Stage[int] { ran = true; return nil })
	for i, err := range []error{do, call, submit} {
		var invalid *admission.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "gate" || errors.Is(err, admission.ErrRejected) || ran {
			t.Errorf("nil gate, %d: %v, ran: %t", i, err, ran)
		}
	}
	var zero admission.Gate
	if _, err := zero.TryAcquire(); !errors.Is(err, admission.ErrRejected) {
		t.Fatal(err)
	}
	if err := zero.Drain(context.Background()); err != nil || zero.InFlight() != 0 || zero.Limit() != 0 {
		t.Fatal("the zero Gate is not an empty one")
	}
	zero.Close()
	var r *admission.RejectedError
	if err := zero.Do(func() error { return nil }); !errors.As(err, &r) || r.Reason != admission.Closed {
		t.Fatal(err)
	}
	if s := zero.Stats(); s.Rejected != 2 || s.RejectedClosed != 1 {
		t.Fatalf("%+v", s)
	}
}

// TestHugeLimits: a limit is a number, and costs nothing until slots are taken.
func TestHugeLimits(t *testing.T) {
	for _, limit := range []int{math.MaxInt32, math.MaxInt} {
		var before, after runtime.MemStats
		ps := make([]admission.Permit, 1000)
		runtime.ReadMemStats(&before)
		g := mustNew(t, admission.Config{Limit: limit})
		for i := range ps {
			var err error
			if ps[i], err = g.TryAcquire(); err != nil {
				t.Fatal(err)
			}
		}
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 64*1000 {
			t.Errorf("%d bytes for %d permits", grown, len(ps))
		}
		if g.InFlight() != 1000 || g.Limit() != limit {
			t.Fatal(g.InFlight(), g.Limit())
		}
		for _, p := range ps {
			p.Release()
		}
		atRest(t, g, 1000)
	}
}
