// The gate and its permits: a mutex, two counters, and slots that let copies of a permit release once.

package admission

import (
	"context"
	"sync"

	"github.com/stopbank/stopbank/admission/internal/nilcheck"
)

// Config describes a gate.
type Config struct {
	// Name appears in errors, events and metrics; it may be empty.
	Name string
	// Limit is how many operations may be in flight at once, 1 or more. For a kill switch, which rejects everything, call
	// [Gate.Close].
	Limit int
	// Observer, if not nil, receives every admission, rejection and release.
	Observer Observer
}

// Gate bounds how many operations are in flight. Its methods are safe for concurrent use; each holds one mutex for
// nanoseconds. A Gate starts no goroutine and needs no cleanup. It must not be copied.
//
// The zero Gate rejects everything, as if its limit were 0. So does a nil *Gate: its methods return an [*InvalidError] where they
// can return an error, and zero where they cannot; closing it does nothing.
type Gate struct {
	mu       sync.Mutex    // guards the fields down to config; no code of others runs while it is held
	admitted uint64        // the number of the latest admission, which is how many there were
	released uint64        // how many of them have ended; the difference is in flight
	free     *slot         // slots that no permit holds
	drained  chan struct{} // made by a Drain that waits, closed and forgotten when nothing is in flight
	closed   bool
	rejected [reasons]uint64 // rejections by reason
	panics   uint64          // of the observer

	config     Config
	rejections [reasons]RejectedError // by reason, Closed by Close; shared, so that rejecting allocates nothing
}

// Permit is one admission. It is a small value that may be copied and released by any goroutine: all copies together
// release once. The zero Permit releases nothing.
type Permit struct {
	gate      *Gate
	slot      *slot
	admission uint64
}

// A slot holds the number of the one admission that may give it back. No two admissions of a gate have the same
// number, so a stale copy of a permit never matches, whoever holds the slot by then (A3).
type slot struct {
	admission uint64 // 0: nobody's, and in Gate.free
	next      *slot  // in Gate.free
}

const slotsAtOnce = 32 // slots that are allocated together, 512 bytes

// New returns an open gate. The error, an [*InvalidError], names the invalid field.
//
// A gate takes about 200 bytes, plus 16 bytes for each permit that was out at the peak, in steps of 512. The size of
// Limit costs nothing.
func New(cfg Config) (*Gate, error) {
	if cfg.Limit < 1 {
		return nil, &InvalidError{Field: "Config.Limit", Value: cfg.Limit, Allowed: "1 or more (to reject everything, call Close)"}
	}
	if typed := nilcheck.Optional(cfg.Observer); typed != "" {
		return nil, &InvalidError{Field: "Config.Observer", Value: typed, Allowed: "nil (no observer) or an observer"}
	}
	g := &Gate{config: cfg}
	g.rejections[Saturated] = RejectedError{Gate: cfg.Name, Reason: Saturated, Limit: cfg.Limit}
	return g, nil
}

// TryAcquire admits the caller or rejects it at once; it never waits for a slot. It allocates only when more permits are
// out than ever before: 512 bytes for the next 32. The error is a [*RejectedError], or an [*InvalidError] when g is nil;
// the permit is then the zero Permit, whose Release does nothing.
//
// The caller owns the permit and must release it on every path: defer p.Release().
func (g *Gate) TryAcquire() (Permit, error) {
	if g == nil {
		return Permit{}, nilGate()
	}
	g.mu.Lock()
	if rejected := g.admit(); rejected != nil {
		g.mu.Unlock()
		return Permit{}, g.observeRejection(rejected)
	}
	if g.free == nil {
		g.grow()
	}
	p := Permit{gate: g, slot: g.free, admission: g.admitted}
	g.free = p.slot.next
	p.slot.admission = p.admission
	g.mu.Unlock()
	if g.config.Observer != nil {
		p.announce()
	}
	return p, nil
}

// Release ends the admission and frees its slot. It returns true to exactly one caller per admission, the first. False
// means that the permit was released before, or is the zero Permit, and that nothing has changed (A3). Release allocates
// nothing.
func (p Permit) Release() bool {
	g := p.gate
	if g == nil {
		return false
	}
	g.mu.Lock()
	first := p.giveBack()
	g.mu.Unlock()
	if first && g.config.Observer != nil {
		g.observe(Event{Kind: Released, Outcome: Unknown})
	}
	return first
}

// end is Release by a caller that knows how the operation ended. Release does not call it, because passing that on would
// cost a twentieth of TryAcquire and Release.
func (p Permit) end(how Outcome, err error) bool {
	g := p.gate
	g.mu.Lock()
	first := p.giveBack()
	g.mu.Unlock()
	if first && g.config.Observer != nil {
		g.observe(Event{Kind: Released, Outcome: how, Err: err})
	}
	return first
}

// Do runs fn if the gate admits it. fn is in flight until it returns, panics or calls runtime.Goexit; a panic is not
// recovered, so its stack stays whole. Do returns fn's own error; a [*RejectedError], and fn was not called; or an
// [*InvalidError] when g or fn is nil. Do never waits for a slot and allocates nothing.
func (g *Gate) Do(fn func() error) error {
	switch {
	case g == nil:
		return nilGate()
	case fn == nil:
		return nilFunc("fn")
	}
	g.mu.Lock()
	rejected := g.admit()
	g.mu.Unlock()
	switch {
	case rejected != nil:
		return g.observeRejection(rejected)
	case g.config.Observer != nil:
		return g.doObserved(fn)
	}
	defer g.done() // only this call can end the admission, so it needs no slot
	return fn()
}

// Call is [Gate.Do] for a function with a result. After a rejection the result is the zero value.
func Call[T any](g *Gate, fn func() (T, error)) (T, error) {
	var v T
	if fn == nil {
		return v, nilFunc("fn")
	}
	err := g.Do(func() (err error) {
		v, err = fn()
		return err
	})
	return v, err
}

// admit decides, and counts what it decided; nil: admitted. The caller holds g.mu.
func (g *Gate) admit() *RejectedError {
	reason := Saturated
	switch {
	case g.closed:
		reason = Closed
	case g.admitted-g.released < uint64(g.config.Limit):
		g.admitted++
		return nil
	}
	g.rejected[reason]++
	return &g.rejections[reason]
}

// grow adds free slots. The caller holds g.mu and has been admitted, so Limit is not 0.
func (g *Gate) grow() {
	slots := make([]slot, min(slotsAtOnce, g.config.Limit))
	for i := range slots {
		slots[i].next = g.free
		g.free = &slots[i]
	}
}

// giveBack ends the admission of p unless it has ended, and reports whether it did (A2). The caller holds p.gate.mu.
func (p Permit) giveBack() bool {
	if p.slot.admission != p.admission {
		return false
	}
	p.slot.admission = 0
	p.slot.next = p.gate.free
	p.gate.free = p.slot
	p.gate.leave()
	return true
}

// leave ends one admission. The caller holds g.mu.
func (g *Gate) leave() {
	g.released++
	if g.drained != nil && g.admitted == g.released {
		close(g.drained)
		g.drained = nil
	}
}

// done ends the admission of a Do.
func (g *Gate) done() {
	g.mu.Lock()
	g.leave()
	g.mu.Unlock()
}

// Stats are a gate's counters at one instant. The uint64 counters never fall.
type Stats struct {
	Limit    int // Config.Limit
	InFlight int // admitted and not yet released
	// Admitted counts admissions, Released those that ended: Admitted = Released + InFlight, always.
	Admitted, Released uint64
	// Rejected counts rejections, RejectedClosed those by a closed gate. Admitted + Rejected is the number of
	// calls decided.
	Rejected, RejectedClosed uint64
	// ObserverPanics counts panics of the Observer that were contained.
	ObserverPanics uint64
}

// Stats returns the counters at one instant during the call. It allocates nothing.
func (g *Gate) Stats() Stats {
	if g == nil {
		return Stats{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return Stats{
		Limit:          g.config.Limit,
		InFlight:       int(g.admitted - g.released),
		Admitted:       g.admitted,
		Released:       g.released,
		Rejected:       g.rejected[Saturated] + g.rejected[Closed],
		RejectedClosed: g.rejected[Closed],
		ObserverPanics: g.panics,
	}
}

// InFlight returns how many operations were in flight at one instant during the call: exact, and never more than Limit.
// It allocates nothing.
func (g *Gate) InFlight() int { return g.Stats().InFlight }

// Limit returns Config.Limit.
func (g *Gate) Limit() int { return g.Stats().Limit }

// Close rejects all later operations with [Closed]. Operations in flight are not affected, and Close does not wait for
// them; [Gate.Drain] does. Closing twice is the same as closing once.
func (g *Gate) Close() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.rejections[Closed] = RejectedError{Gate: g.config.Name, Reason: Closed, Limit: g.config.Limit}
		g.closed = true
	}
}

// Drain blocks until no operation is in flight and returns nil, or until ctx ends and returns ctx's error. An open gate
// may admit new operations at any time, also before Drain returns; after Close, an empty gate stays empty. A nil ctx
// never ends. The error is an [*InvalidError] when g is nil. Drain starts no goroutine and does not poll.
func (g *Gate) Drain(ctx context.Context) error {
	if g == nil {
		return nilGate()
	}
	g.mu.Lock()
	if g.admitted == g.released {
		g.mu.Unlock()
		return nil
	}
	if g.drained == nil {
		g.drained = make(chan struct{})
	}
	drained := g.drained
	g.mu.Unlock()

	var ended <-chan struct{}
	if ctx != nil {
		ended = ctx.Done()
	}
	select {
	case <-drained:
		return nil
	case <-ended:
	}
	select {
	case <-drained: // both: what was waited for came true
		return nil
	default:
		return ctx.Err()
	}
}
