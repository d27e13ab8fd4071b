// Asynchronous work: in flight until its stage ends, and stages for work that has none.

package admission

import (
	"context"
	"errors"
	"fmt"
	"log"
	"runtime/debug"
	"sync"
)

// Stage is asynchronous work that will end. OnDone registers a callback, to be called once with the result: by the
// goroutine that ends the stage, or at once if the stage has ended already. [Promise] is a Stage; anything with a
// completion callback can be made into one.
type Stage[T any] interface {
	OnDone(func(T, error))
}

// Submit calls start if the gate admits it, and keeps the admission in flight until the stage that start returned ends:
// with success, with an error, or canceled. It returns that very stage. However often, in whatever order and from
// however many goroutines the stage calls back, the first call releases the slot and the others do nothing.
//
// start is called at most once, after the admission, on the caller's goroutine, and never after a rejection; so all side
// effects must be inside start (the operation must be cold). If start panics or calls runtime.Goexit, the slot is freed
// and the panic goes on.
//
// The stage is nil if there is an error: a [*RejectedError]; an [*InvalidError] for a nil g or start, or when start
// returned nil; or a [*PanicError] when OnDone panicked. In the last two cases the work may be running, no longer
// counted as in flight. A panic of OnDone after the stage has ended is dropped: the stage's result counts.
//
// Canceling a stage frees its slot although the work behind it may still run; Submit does not pass the cancellation on.
// To bound the work itself, cancel it through its context and end the stage when the work has ended.
//
// Submit never blocks, apart from start and OnDone, and allocates one small closure.
func Submit[T any](g *Gate, start func() Stage[T]) (Stage[T], error) {
	if start == nil {
		return nil, nilFunc("start")
	}
	p, err := g.TryAcquire()
	if err != nil {
		return nil, err
	}
	s := begin(p, start)
	if s == nil {
		err := &InvalidError{Field: "start()", Value: "nil", Allowed: "a stage"}
		p.end(Failed, err)
		return nil, err
	}
	if err := watch(p, s); err != nil {
		return nil, err
	}
	return s, nil
}

// begin calls start and releases if it does not return.
func begin[T any](p Permit, start func() Stage[T]) Stage[T] {
	returned := false
	defer func() {
		if !returned {
			p.end(Aborted, nil)
		}
	}()
	s := start()
	returned = true
	return s
}

// watch releases p when s ends, or now if s cannot be watched. What OnDone's panic means is decided by who released: if
// the stage had already ended, the stage stands.
func watch[T any](p Permit, s Stage[T]) (err error) {
	registered := false
	defer func() {
		if registered {
			return
		}
		v := recover()
		if v == nil { // runtime.Goexit, which goes on
			p.end(Aborted, ErrGoexit)
			return
		}
		panicked := &PanicError{Value: v, Stack: debug.Stack()}
		if p.end(Failed, panicked) {
			err = panicked
		}
	}()
	s.OnDone(func(_ T, err error) { p.end(byError, err) })
	registered = true
	return nil
}

// Promise is a [Stage] that its holder ends: once, by the first of Resolve, Reject and Cancel. The zero value is ready
// to use. A Promise must not be copied.
type Promise[T any] struct {
	mu      sync.Mutex // guards all below; not held while callbacks run
	settled bool
	value   T
	err     error
	then    []func(T, error)
	done    chan struct{} // nil until somebody asks for it
	told    bool          // the callbacks have run: done is, or will be made, closed
}

// Resolve ends the promise with a value, runs the callbacks, and reports whether this call ended it.
func (p *Promise[T]) Resolve(v T) bool { return p.settle(v, nil) }

// Reject ends the promise with an error, runs the callbacks, and reports whether this call ended it. A nil error becomes
// an [*InvalidError]: a rejected promise never looks like success.
func (p *Promise[T]) Reject(err error) bool {
	if err == nil {
		err = &InvalidError{Field: "err", Value: "nil", Allowed: "an error"}
	}
	var zero T
	return p.settle(zero, err)
}

// Cancel ends the promise with [context.Canceled], runs the callbacks, and reports whether this call ended it. A gate
// thus gets its slot back, but the work behind the promise does not hear of it and may still be running; see [Submit].
func (p *Promise[T]) Cancel() bool { return p.Reject(context.Canceled) }

func (p *Promise[T]) settle(v T, err error) bool {
	p.mu.Lock()
	if p.settled {
		p.mu.Unlock()
		return false
	}
	p.settled, p.value, p.err = true, v, err
	then := p.then
	p.then = nil
	p.mu.Unlock()

	defer p.tell()
	p.run(then)
	return true
}

// run calls the callbacks, the later ones also if an earlier one panics or exits: one of them may hold a permit.
func (p *Promise[T]) run(then []func(T, error)) {
	for i, f := range then {
		returned := false
		func() {
			defer func() {
				if !returned {
					p.run(then[i+1:])
				}
			}()
			f(p.value, p.err)
			returned = true
		}()
	}
}

// tell lets the waiters go.
func (p *Promise[T]) tell() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = true
	if p.done != nil {
		close(p.done)
	}
}

// OnDone has f called with the result when the promise ends: by the goroutine that ends it, in order of registration, or
// at once if it has ended. A panic in f reaches that goroutine after the other callbacks have run. f should be brief,
// and must not wait for the promise. A nil f is ignored.
func (p *Promise[T]) OnDone(f func(T, error)) {
	if f == nil {
		return
	}
	p.mu.Lock()
	if !p.settled {
		p.then = append(p.then, f)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	f(p.value, p.err)
}

// Done returns a channel that is closed when the promise has ended and the callbacks registered until then have run: a
// goroutine that waited for it finds the slot free again.
func (p *Promise[T]) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		p.done = make(chan struct{})
		if p.told {
			close(p.done)
		}
	}
	return p.done
}

// Wait blocks until the promise has ended, as Done does, and returns its result, or until ctx ends and returns ctx's
// error; the promise is not canceled then. A nil ctx never ends.
func (p *Promise[T]) Wait(ctx context.Context) (T, error) {
	done := p.Done()
	select {
	case <-done: // also if ctx has ended
		return p.value, p.err
	default:
	}
	var ended <-chan struct{}
	if ctx != nil {
		ended = ctx.Done()
	}
	select {
	case <-done:
		return p.value, p.err
	case <-ended:
		var zero T
		return zero, ctx.Err()
	}
}

// Async runs fn on a new goroutine and returns the promise of its result. If fn panics, the promise is rejected with a
// [*PanicError]; if it calls runtime.Goexit, with [ErrGoexit]. If the promise was canceled before, fn's result is
// dropped, and a panic is written to the standard logger. A nil fn gives a promise rejected with an [*InvalidError].
//
// To bound it, call it inside [Submit]; called outside, the work starts before it is admitted.
func Async[T any](fn func() (T, error)) *Promise[T] {
	p := new(Promise[T])
	if fn == nil {
		p.Reject(nilFunc("fn"))
		return p
	}
	go func() {
		returned := false
		defer func() {
			if returned {
				return
			}
			v := recover()
			if v == nil {
				p.Reject(ErrGoexit)
				return
			}
			if e := (&PanicError{Value: v, Stack: debug.Stack()}); !p.Reject(e) {
				log.Printf("%v (its promise had ended before)\n%s", e, e.Stack)
			}
		}()
		v, err := fn()
		returned = true
		p.settle(v, err)
	}()
	return p
}

// ErrGoexit is the error of an [Async] function that ended its goroutine with runtime.Goexit. An [Observer] also gets it
// for a stage whose OnDone called runtime.Goexit.
var ErrGoexit = errors.New("admission: function called runtime.Goexit")

// PanicError is the error of an [Async] function that panicked, and of a [Submit] whose stage panicked in OnDone before it
// ended. After the latter, the admission has been released and a late callback changes nothing.
type PanicError struct {
	Value any    // the value passed to panic
	Stack []byte // the stack of the goroutine that panicked, as debug.Stack prints it
}

// Error prints the value; the stack is in Stack.
func (e *PanicError) Error() string {
	return fmt.Sprintf("admission: panic: %v", e.Value)
}

// Unwrap returns Value if it is an error, and nil otherwise.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
