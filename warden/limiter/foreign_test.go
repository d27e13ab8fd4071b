// Code of others, called by a limiter: slots, observers, functions that panic.

package limiter

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
