// Code of others, called by a limiter: slots, observers, functions that panic; and arguments that nobody should pass.

package limiter

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// owner is a Slots that gives a freed place to another limiter first.
type owner struct {
	mu    sync.Mutex
	free  int
	first *Limiter // when a place is free and it wants one, it is the only one that gets it
	wants bool
	log   []string
}

type slotsOf struct {
	o    *owner
	name string
	l    **Limiter
}

func (s slotsOf) TryTake() bool {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	if s.o.free == 0 || s.o.wants && *s.l != s.o.first {
		s.o.log = append(s.o.log, s.name+" refused")
		return false
	}
	s.o.free--
	s.o.wants = false
	s.o.log = append(s.o.log, s.name+" granted")
	return true
}

func (s slotsOf) Give() {
	s.o.mu.Lock()
	s.o.free++
	s.o.log = append(s.o.log, s.name+" gave")
	s.o.mu.Unlock()
	s.o.first.Wake()
}

// TestQ1_APlaceReturnsToItsOwnerFirst lets a borrower free a place while both it and the owner have waiters.
func TestQ1_APlaceReturnsToItsOwnerFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := &owner{free: 1}
		var owns, borrows *Limiter
		owns = mustNew(t, Config{MaxQueue: 5, Initial: fixed(5), Slots: slotsOf{o, "owner", &owns}})
		borrows = mustNew(t, Config{MaxQueue: 5, Initial: fixed(5), Slots: slotsOf{o, "borrower", &borrows}})
		o.first = owns
		b, own := newLine(t, borrows), newLine(t, owns)
		b.join(Task{Name: "b1"})
		b.join(Task{Name: "b2"})
		o.mu.Lock()
		o.wants = true
		o.mu.Unlock()
		own.join(Task{Name: "o1"})
		o.mu.Lock()
		o.log = nil
		o.mu.Unlock()
		b.permits["b1"].Release()
		synctest.Wait()
		if got := strings.Join(o.log, ", "); !strings.HasPrefix(got, "borrower gave, owner granted") || len(own.started) != 1 || len(b.started) != 1 {
			t.Errorf("%s; started %v, %v", got, own.started, b.started)
		}
		own.permits["o1"].Release()
		borrows.Wake()
		synctest.Wait()
		if len(b.started) != 2 {
			t.Errorf("started %v", b.started)
		}
		b.permits["b2"].Release()
		if o.free != 1 {
			t.Errorf("%d places", o.free)
		}
	})
}

// faulty does what no Slots or Observer should.
type faulty struct {
	l     *Limiter
	exits bool
	calls int
}

func (f *faulty) TryTake() bool { f.calls++; panic("TryTake") }
func (f *faulty) Give()         { f.calls++; panic("Give") }

func (f *faulty) Observe(e Event) {
	if f.calls++; f.exits && e.Outcome == Started {
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

// TestQ6_AnObserverChangesNothing has one that panics, uses the limiter, and ends the goroutine.
func TestQ6_AnObserverChangesNothing(t *testing.T) {
	f := &faulty{}
	l := mustNew(t, Config{Observer: recursionFree{f}, Initial: fixed(1)})
	f.l = l
	p, err := l.Acquire(t.Context(), Task{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.TryAcquire(Task{})
	wantReason(t, err, QueueOverflow)
	p.Release()
	if s := l.Stats(); s.ForeignPanics != 3 || f.calls != 3 || s.Executed != 1 || s.Running != 0 || s.RejectedFor(QueueOverflow) != 1 {
		t.Errorf("%+v after %d calls", s, f.calls)
	}
	f.exits = true
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = l.Acquire(context.Background(), Task{})
		t.Error("the observer did not end the goroutine")
	}()
	<-done
	if s := l.Stats(); s.Running != 0 || s.Executed != 2 {
		t.Errorf("a place was lost: %+v", s)
	}
}

// TestQ9_SlotsThatPanic count as a refusal and lose nothing.
func TestQ9_SlotsThatPanic(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &faulty{}
		l := mustNew(t, Config{MaxQueue: 2, Slots: f, Initial: fixed(1)})
		q := newLine(t, l)
		q.join(Task{Name: "x", Deadline: time.Now().Add(time.Second)})
		l.Wake()
		if s := l.Stats(); s.ForeignPanics == 0 || s.Queued != 1 || s.Running != 0 {
			t.Errorf("%+v", s)
		}
		sleep(time.Second)
		q.wantRefused("x", DeadlineExceeded)
	})
}

// TestQ6_DoReleases whatever its function does.
func TestQ6_DoReleases(t *testing.T) {
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
			t.Errorf("%s: %v, %v", name, err, thrown)
		}
		if s := l.Stats(); s.Running != 0 {
			t.Fatalf("%s: %+v", name, s)
		}
	}
	if s := l.Stats(); s.Executed != 4 {
		t.Errorf("%+v", s)
	}
}

// TestBadConfig is refused with the field's name.
func TestBadConfig(t *testing.T) {
	for want, cfg := range map[string]Config{
		"Config.MaxQueue is -1":                                 {MaxQueue: -1},
		"Config.StarvationEvery is -1":                          {StarvationEvery: -1},
		"Config.StandAfter is -1ns":                             {StandAfter: -1},
		"Config.Recent is -1":                                   {Recent: -1},
		"Config.Initial.ShedProbability is NaN":                 {Initial: decision.ControlDecision{Seq: 1, ShedProbability: math.NaN()}},
		"Config.Initial.ShedProbability is +Inf":                {Initial: decision.ControlDecision{ShedProbability: math.Inf(1)}},
		"Config.Initial.TargetConcurrency is -1":                {Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: -1}},
		"Config.Initial.Stale.Yields is -1":                     {Initial: decision.ControlDecision{Seq: 1, Stale: &decision.ControlDecision{Yields: -1}}},
		"Config.Initial.Seq is 0; allowed: 1 or more, in a dec": {Initial: decision.ControlDecision{TargetConcurrency: 5}},
	} {
		l, err := New(cfg)
		var invalid *InvalidError
		if l != nil || !errors.Is(err, ErrInvalid) || !errors.As(err, &invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want it to say %q", cfg, err, want)
		}
	}
	for _, cfg := range []Config{{}, {Initial: decision.Default()}, {Initial: decision.ControlDecision{Seq: 1}, StandAfter: math.MaxInt64}} {
		if _, err := New(cfg); err != nil {
			t.Error(err)
		}
	}
}

// TestBadArguments are typed errors, or nothing at all.
func TestBadArguments(t *testing.T) {
	l := mustNew(t, Config{})
	var zero Limiter
	zero.Apply(decision.Default())
	zero.Wake()
	zero.Close()
	fn := func(context.Context) (int, error) { t.Error("called"); return 0, nil }
	for name, call := range map[string]func() error{
		"zero TryAcquire":   func() error { _, err := zero.TryAcquire(Task{}); return err },
		"zero with a limit": func() error { _, err := zero.TryAcquire(Task{Deadline: time.Now()}); return err },
		"zero Acquire":      func() error { _, err := zero.Acquire(t.Context(), Task{}); return err },
		"zero Do":           func() error { _, err := Do(t.Context(), &zero, Task{}, fn); return err },
		"nil Do":            func() error { _, err := Do(t.Context(), nil, Task{}, fn); return err },
		"nil fn":            func() error { _, err := Do[int](t.Context(), l, Task{}, nil); return err },
		"nil ctx":           func() error { _, err := l.Acquire(nil, Task{}); return err }, //nolint:staticcheck // on purpose
		"nil ctx Do":        func() error { _, err := Do(nil, l, Task{}, fn); return err }, //nolint:staticcheck // on purpose
	} {
		var invalid *InvalidError
		if err := call(); !errors.Is(err, ErrInvalid) || !errors.As(err, &invalid) || invalid.Allowed == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s := zero.Stats(); s != (Stats{}) || zero.Recent() != nil {
		t.Errorf("%+v", s)
	}
	if s := l.Stats(); s.Submitted != 0 || s.Running != 0 {
		t.Errorf("%+v", s)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Do(done, l, Task{}, fn)
	if wantReason(t, err, Canceled); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if (Permit{}).Release() {
		t.Error("the zero permit released something")
	}
}

// TestMalformedDecisions leave nobody stuck and no rule broken.
func TestMalformedDecisions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, p := occupied(t, Config{})
		q := newLine(t, l)
		q.join(Task{Name: "x"})
		self := decision.ControlDecision{Seq: 2, TargetConcurrency: -5, ShedProbability: math.NaN(), ValidFor: -1, Expected: math.MinInt64, Yields: -9}
		self.Stale = &self
		l.Apply(self)
		if s := l.Stats(); s.Target != 0 {
			t.Errorf("%+v", s)
		}
		l.Apply(decision.ControlDecision{Seq: 1, TargetConcurrency: 9}) // older
		if s := l.Stats(); s.Target != 0 || s.Queued != 1 {
			t.Errorf("%+v", s)
		}
		l.Apply(decision.ControlDecision{Seq: 3, TargetConcurrency: math.MaxInt, ShedProbability: math.Inf(1), ValidFor: math.MaxInt64, Expected: math.MaxInt64, Yields: math.MaxInt})
		synctest.Wait()
		if s := l.Stats(); s.Target != maxPlaces || len(q.started) != 1 {
			t.Errorf("%+v", s)
		}
		q.drain(p)
		q.join(Task{Name: "y", Deadline: time.Now().Add(time.Hour)})
		q.wantRefused("y", DeadlineExceeded) // nothing takes 292 years and is done in an hour
	})
}

// curious is a Slots that uses the limiter from within.
type curious struct {
	t     *testing.T
	l     *Limiter
	free  int
	asked chan struct{}
}

func (c *curious) look(use func()) {
	done := make(chan struct{})
	go func() {
		use()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		c.t.Error("Slots are asked while a lock is held")
	}
}

func (c *curious) TryTake() bool {
	c.look(func() { c.l.Stats() })
	select {
	case c.asked <- struct{}{}:
	default:
	}
	if c.free == 0 {
		return false
	}
	c.free--
	return true
}

func (c *curious) Give() {
	c.free++
	c.look(c.l.Wake)
}

// TestQ9_SlotsMayUseTheLimiter asks for a place while nobody waits, and while somebody does.
func TestQ9_SlotsMayUseTheLimiter(t *testing.T) {
	c := &curious{t: t, asked: make(chan struct{}, 1)}
	l := mustNew(t, Config{MaxQueue: 1, Slots: c, Initial: fixed(1)})
	c.l = l
	ctx, cancel := context.WithCancel(t.Context())
	refused := make(chan error)
	go func() {
		_, err := l.Acquire(ctx, Task{})
		refused <- err
	}()
	<-c.asked
	for l.Stats().Queued == 0 {
		runtime.Gosched()
	}
	cancel()
	wantReason(t, <-refused, Canceled)
	c.free = 1
	p, err := l.Acquire(t.Context(), Task{})
	if err != nil || !p.Release() || c.free != 1 {
		t.Fatal(err)
	}
}
