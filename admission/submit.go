// Admission of asynchronous work: in flight until a stage ends.

package admission

// Stage is work under way that will end. OnDone asks to be called once when it has ended, with its result, on whatever
// goroutine ends it, or at once if it has ended already. [Promise] is one; anything with a completion callback can be
// made into one.
type Stage[T any] interface {
	OnDone(func(T, error))
}

// Submit calls start if the gate admits it, and keeps the admission in flight until the stage that start returned ends:
// with success, with an error, or canceled. It returns that very stage. Whatever the stage does to its
// callback, in whatever order and from however many goroutines, there is one release, by the first terminal signal.
//
// start is called at most once, after admission, on the caller's goroutine, and never if the gate refuses; so all side
// effects must be inside start (the operation must be cold). If start panics or calls runtime.Goexit, the admission is
// released and the panic goes on.
//
// The stage is nil if there is an error: a [*RejectedError], an [*InvalidError] for a nil g or start, [ErrNilStage], or an
// [*ObserveError] if OnDone panicked; in the last two cases the work may be running, no longer counted as in flight. A
// panic of OnDone that comes after the stage has already ended is dropped: the stage's result is what counts.
//
// A stage that is canceled while its work goes on gives its capacity back although the work still runs; Submit does not
// pass cancellation on. If the work itself is what must be bounded, end the stage only when the work has ended, and
// cancel the work by its context.
//
// Submit never blocks, beyond what start and OnDone do, and allocates one small closure.
func Submit[T any](g *Gate, start func() Stage[T]) (Stage[T], error) {
	switch {
	case g == nil:
		return nil, nilGate()
	case start == nil:
		return nil, nilFunc("start")
	}
	p, err := g.TryAcquire()
	if err != nil {
		return nil, err
	}
	s := begin(p, start)
	if s == nil {
		p.end(Failed, ErrNilStage)
		return nil, ErrNilStage
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
		observe := &ObserveError{Value: v}
		if p.end(Failed, observe) {
			err = observe
		}
	}()
	s.OnDone(func(_ T, err error) { p.end(byError, err) })
	registered = true
	return nil
}
