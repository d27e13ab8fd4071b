// What a refusal costs and carries, what waits (nothing), what a broken observer may do (nothing), what nonsense gets.

package admission

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestA6_RefusalSaysWhy(t *testing.T) {
	g := mustNew(t, Config{Name: "db", Limit: 0})
	check := func(reason Reason) {
		t.Helper()
		_, err := g.TryAcquire()
		var r *RejectedError
		if !errors.Is(err, ErrRejected) || !errors.As(err, &r) || *r != (RejectedError{"db", reason, 0}) {
			t.Fatalf("%#v", err)
		}
		if s := err.Error(); !strings.Contains(s, `"db"`) || !strings.Contains(s, reason.String()) {
			t.Fatalf("message %q", s)
		}
		if errors.Is(err, ErrInvalid) {
			t.Fatal("a refusal is not an invalid argument")
		}
	}
	check(Saturated)
	g.Close()
	check(Closed)
}

// TestA6_NothingAllocates covers every path of the calls that promise it.
func TestA6_NothingAllocates(t *testing.T) {
	for _, limit := range []int{1, 5, 100} {
		open, full, shut := mustNew(t, Config{Limit: limit}), mustNew(t, Config{Limit: limit}), mustNew(t, Config{Limit: limit})
		gathered := mustNew(t, Config{Limit: limit})
		gathered.gather()
		for range limit {
			_, _ = full.TryAcquire()
		}
		shut.Close()
		nameless := mustNew(t, Config{Limit: limit})
		nameless.gather()
		for i := range nameless.lines {
			for j := range nameless.lines[i].names {
				nameless.lines[i].names[j].w.Add(identify)
			}
		}
		fn := func() error { return nil }
		for name, f := range map[string]func(){
			"Do":                    func() { _ = open.Do(fn) },
			"Call":                  func() { _, _ = Call(open, func() (int, error) { return limit, nil }) },
			"TryAcquire":            func() { p, _ := open.TryAcquire(); p.Release() },
			"TryAcquire, central":   func() { p, _ := gathered.TryAcquire(); p.Release(); gathered.calmed = 0 },
			"Do, central":           func() { _ = gathered.Do(fn); gathered.calmed = 0 },
			"TryAcquire, no names":  func() { p, _ := nameless.TryAcquire(); p.Release(); nameless.calmed = 0 },
			"refusal":               func() { _, _ = full.TryAcquire() },
			"refusal by Do":         func() { _ = full.Do(fn) },
			"refusal, closed":       func() { _, _ = shut.TryAcquire() },
			"refusal by Submit":     func() { _, _ = Submit(full, func() Stage[int] { return nil }) },
			"InFlight":              func() { open.InFlight(); full.InFlight() },
			"Stats":                 func() { open.Stats(); full.Stats() },
			"Release, a stale copy": func() { p, _ := open.TryAcquire(); p.Release(); p.Release() },
		} {
			if n := testing.AllocsPerRun(200, f); n != 0 {
				t.Errorf("limit %d, %s: %v allocations", limit, name, n)
			}
		}
	}
}

// TestA7_NothingWaits: in a bubble, a call that waited for a place would deadlock, and a timer would move the clock.
func TestA7_NothingWaits(t *testing.T) {
	for _, observer := range []Observer{nil, new(recorder)} {
		synctest.Test(t, func(t *testing.T) {
			g := mustNew(t, Config{Limit: 1, Observer: observer})
			p, _ := g.TryAcquire()
			before, began := runtime.NumGoroutine(), time.Now()
			ran := false
			for range 10 {
				_, err := g.TryAcquire()
				_, err2 := Submit(g, func() Stage[int] { ran = true; return nil })
				if err == nil || err2 == nil || g.Do(func() error { ran = true; return nil }) == nil {
					t.Fatal("admitted above the limit")
				}
			}
			if waited := time.Since(began); waited != 0 {
				t.Errorf("refusals took %v", waited)
			}
			p.Release()
			synctest.Wait()
			if ran || g.InFlight() != 0 || runtime.NumGoroutine() != before {
				t.Fatalf("something was kept for later: ran %v, in flight %d, goroutines %d then %d", ran, g.InFlight(), before, runtime.NumGoroutine())
			}
		})
	}
}

// TestA9_BrokenObserver: panics, Goexit and re-entrance change no count and no answer.
func TestA9_BrokenObserver(t *testing.T) {
	log := &recorder{do: func(Event) { panic("observer") }}
	g := mustNew(t, Config{Limit: 1, Observer: log})
	p, err := g.TryAcquire()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Do(func() error { return nil }); !errors.Is(err, ErrRejected) {
		t.Fatal(err)
	}
	if !p.Release() || p.Release() {
		t.Fatal("Release")
	}
	if err := g.Do(func() error { return errMine }); !errors.Is(err, errMine) {
		t.Fatal(err)
	}
	if _, thrown, _ := run(func() error { return g.Do(func() error { return end(panics) }) }); thrown != any(errMine) {
		t.Fatalf("fn's panic became %v", thrown)
	}
	atRest(t, g, 3)
	if n := g.Stats().ObserverPanics; n != uint64(len(log.events)) || n != 7 {
		t.Fatalf("%d panics counted, %d events", n, len(log.events))
	}

	log.do = func(Event) { runtime.Goexit() }
	for _, f := range []func() error{
		func() error { _, err := g.TryAcquire(); return err },
		func() error { return g.Do(func() error { return nil }) },
		func() error { _, err := Submit(g, func() Stage[int] { return NewPromise[int]() }); return err },
	} {
		if _, _, exited := run(f); !exited || g.InFlight() != 0 {
			t.Fatalf("an observer that exits: exited %v, %d in flight", exited, g.InFlight())
		}
	}

	log.do = func(e Event) {
		if e.Kind == Admitted && g.InFlight() != 1 || e.Kind == Released && g.InFlight() != 0 {
			t.Errorf("%v observed with %d in flight", e.Kind, g.InFlight())
		}
		if e.Kind == Released {
			log.do = nil
			if p, err := g.TryAcquire(); err != nil || !p.Release() {
				t.Errorf("the observer could not use the gate: %v", err)
			}
		}
	}
	if err := g.Do(func() error { return nil }); err != nil || log.do != nil {
		t.Fatal(err)
	}
}

// TestA9_HostileError: an error whose Is panics reaches the caller, and only the observer's part of the work suffers.
func TestA9_HostileError(t *testing.T) {
	g := mustNew(t, Config{Limit: 1, Observer: new(recorder)})
	if err, thrown, _ := run(func() error { return g.Do(func() error { return hostileError{} }) }); thrown != nil || err == nil {
		t.Fatal(err, thrown)
	}
	if s := g.Stats(); s.InFlight != 0 || s.ObserverPanics != 1 {
		t.Fatalf("%+v", s)
	}
}

type hostileError struct{}

func (hostileError) Error() string { return "hostile" }
func (hostileError) Is(error) bool { panic("Is") }

// TestA8_EventsTellWhatHappened: kinds, names, reasons, in order.
func TestA8_EventsTellWhatHappened(t *testing.T) {
	log := new(recorder)
	g := mustNew(t, Config{Name: "db", Limit: 1, Observer: log})
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
	want := []Event{
		{Gate: "db", Kind: Admitted},
		{Gate: "db", Kind: Rejected, Reason: Saturated},
		{Gate: "db", Kind: Released, Outcome: Unknown},
		{Gate: "db", Kind: Admitted},
		{Gate: "db", Kind: Released, Outcome: Canceled, Err: context.Canceled},
		{Gate: "db", Kind: Admitted},
		{Gate: "db", Kind: Released, Outcome: Failed, Err: failure},
		{Gate: "db", Kind: Admitted},
		{Gate: "db", Kind: Released, Outcome: Succeeded},
		{Gate: "db", Kind: Rejected, Reason: Closed},
	}
	if len(log.events) != len(want) {
		t.Fatalf("%+v", log.events)
	}
	for i, e := range log.events {
		if e != want[i] {
			t.Errorf("event %d is %+v, want %+v", i, e, want[i])
		}
	}
	if s := Admitted.String() + Rejected.String() + Released.String() + Aborted.String() + EventKind(9).String() + Reason(9).String(); s != "admittedrejectedreleasedabortedEventKind(9)Reason(9)" {
		t.Fatal(s)
	}
}

func TestBadInput(t *testing.T) {
	var invalid *InvalidError
	for _, limit := range []int{-1, math.MinInt} {
		g, err := New(Config{Limit: limit})
		if g != nil || !errors.Is(err, ErrInvalid) || !errors.As(err, &invalid) || invalid.Field != "Config.Limit" || invalid.Value != limit {
			t.Fatalf("New(Limit %d) = %v, %v", limit, g, err)
		}
		for _, part := range []string{"Config.Limit", "-", "0"} {
			if !strings.Contains(err.Error(), part) {
				t.Fatalf("%q does not say %q", err, part)
			}
		}
	}

	g := mustNew(t, Config{Limit: 1})
	errs := []error{g.Do(nil)}
	_, err := Call[int](g, nil)
	errs = append(errs, err)
	_, err = Submit[int](g, nil)
	errs = append(errs, err)
	_, err = Async[int](nil).Wait(context.Background())
	errs = append(errs, err)
	for i, err := range errs {
		if !errors.As(err, &invalid) || invalid.Allowed == "" {
			t.Errorf("nil function %d: %v", i, err)
		}
	}
	if s := g.Stats(); s.Admitted != 0 || s.Rejected != 0 {
		t.Fatalf("nonsense was counted: %+v", s)
	}

	var zero Gate
	if _, err := zero.TryAcquire(); !errors.Is(err, ErrRejected) {
		t.Fatal(err)
	}
	if err := zero.Drain(context.Background()); err != nil || zero.InFlight() != 0 || zero.Limit() != 0 {
		t.Fatal("the zero Gate is not an empty one")
	}
	zero.Close()
	var r *RejectedError
	if err := zero.Do(func() error { return nil }); !errors.As(err, &r) || r.Reason != Closed {
		t.Fatal(err)
	}
	if s := zero.Stats(); s.Rejected != 2 || s.RejectedClosed != 1 {
		t.Fatalf("%+v", s)
	}
	if (Permit{}).Release() {
		t.Fatal("the zero Permit released something")
	}
}

// TestHugeLimits: any limit above 2^32-1 works like that many.
func TestHugeLimits(t *testing.T) {
	for _, limit := range []int{math.MaxInt32, int(min(uint64(math.MaxInt), 1<<32)), math.MaxInt} {
		g := mustNew(t, Config{Limit: limit})
		var ps []Permit
		for range 1000 {
			p, err := g.TryAcquire()
			if err != nil {
				t.Fatal(err)
			}
			ps = append(ps, p)
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

// TestA8_CountSurvivesItsWord: the central word's count of admissions overflows into the gate.
func TestA8_CountSurvivesItsWord(t *testing.T) {
	g := mustNew(t, Config{Limit: 1})
	g.gather()
	g.calmed = -1 << 30
	for round := range 2 { // what overflowed before must not be lost
		g.central.Add(grantedIn - 3*granted - g.central.Load()&grantedIn) // as if that many had been admitted
		before := g.Stats().Admitted
		for range 10 {
			p, err := g.TryAcquire()
			if err != nil {
				t.Fatal(err)
			}
			p.Release()
		}
		if s := g.Stats(); s.Admitted != before+10 || s.InFlight != 0 || g.spilled == 0 {
			t.Fatalf("round %d: %+v, spilled %d, before %d", round, s, g.spilled, before)
		}
	}
}
