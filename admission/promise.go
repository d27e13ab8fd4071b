// A stage for work that has none of its own.

package admission

import (
	"context"
	"log"
	"runtime/debug"
	"sync"
)

// Promise is a [Stage] that whoever holds it may end: once, by the first of Resolve, Reject and Cancel. The zero value is
// ready to use; a Promise must not be copied.
type Promise[T any] struct {
	mu      sync.Mutex // guards all below; not held while callbacks run
	settled bool
	value   T
	err     error
	then    []func(T, error)
	done    chan struct{} // nil until somebody asks for it
	told    bool          // the callbacks have run: done is, or will be made, closed
}

// NewPromise returns a promise that has not ended.
func NewPromise[T any]() *Promise[T] { return new(Promise[T]) }

// Resolve ends the promise with a value and reports whether it was this call that ended it. It runs the callbacks.
func (p *Promise[T]) Resolve(v T) bool { return p.settle(v, nil) }

// Reject ends the promise with an error and reports whether it was this call that ended it. It runs the callbacks. A nil
// error becomes an [*InvalidError]: a rejected promise never looks like success.
func (p *Promise[T]) Reject(err error) bool {
	if err == nil {
		err = &InvalidError{Field: "err", Value: "nil", Allowed: "an error"}
	}
	var zero T
	return p.settle(zero, err)
}

// Cancel ends the promise with [ErrCanceled] and reports whether it was this call that ended it. It runs the callbacks,
// so a gate gets its capacity back, but it does not reach the work behind the promise, which may still be running; see
// [Submit].
func (p *Promise[T]) Cancel() bool { return p.Reject(ErrCanceled) }

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

// OnDone has f called with the result once the promise has ended: by the goroutine that ends it, in order of
// registration, or here and now if it has ended. A panic in f goes to that goroutine, after the other callbacks
// have run. f should be brief, and must not wait for the promise. A nil f is ignored.
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

// Done is closed when the promise has ended and the callbacks registered until then have run: whoever waited for it finds
// the gate's capacity given back.
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

// Wait blocks until the promise has ended, as Done says, and returns its result, or until ctx ends, and returns ctx's
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

// Async runs fn on a goroutine of its own and returns the promise of its result. If fn panics, the promise is rejected
// with a [*PanicError]; if it calls runtime.Goexit, with [ErrGoexit]. If the promise was canceled before, nobody is left
// to tell: what fn returns is dropped, and a panic is written to the standard logger. A nil fn gives a promise
// rejected with an [*InvalidError].
//
// To admit it, start it inside [Submit]; outside, it has started before it is admitted.
func Async[T any](fn func() (T, error)) *Promise[T] {
	p := NewPromise[T]()
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
