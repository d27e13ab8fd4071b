// SPDX-License-Identifier: Apache-2.0

// The gate and its permits: a mutex, two counters, and slots that let copies of a permit release once.

package admission

import (
	"context"
	"sync"
)

// Config describes a gate.
type Config struct {
	// Name appears in rejections; it may be empty.
	Name string
	// Limit is how many operations may be in flight at once, 1 or more. For a kill switch, which rejects everything, call
	// [Gate.Close].
	Limit int
}

// Gate bounds how many operations are in flight. Its methods are safe for concurrent use, and none calls a caller's code
// under the gate's mutex. A Gate starts no goroutine and needs no cleanup. It must not be copied.
//
// The zero Gate rejects everything, as if its limit were 0. So does a nil *Gate: its methods return an [*InvalidError] where they
// can return an error, and zero where they cannot; closing it does nothing.
type Gate struct {
	mu       sync.Mutex    // guards the fields down to config; no caller's code runs while it is held (A9)
	admitted uint64        // the number of the latest admission, which is how many there were
	released uint64        // how many of them have ended; the difference is in flight
	free     *slot         // slots that no permit holds
	drained  chan struct{} // made by a Drain that waits, closed and forgotten when nothing is in flight
	closed   bool
	rejected [reasons]uint64 // rejections by reason

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
// A gate takes 160 bytes on a 64-bit system, plus 16 bytes for each permit that was out at the peak, in steps of 512, or of 16
// times Limit if that is less. A greater Limit costs nothing.
func New(cfg Config) (*Gate, error) {
	if cfg.Limit < 1 {
		return nil, &InvalidError{Field: "Config.Limit", Value: cfg.Limit, Allowed: "1 or more (to reject everything, call Close)"}
	}
	g := &Gate{config: cfg}
	g.rejections[Saturated] = RejectedError{Gate: cfg.Name, Reason: Saturated, Limit: cfg.Limit}
	return g, nil
}

// TryAcquire admits the caller or rejects it at once; it never waits for a slot. It allocates only when more permits are
// out than ever before: at most 512 bytes, for the next 32. The error is a [*RejectedError], or an [*InvalidError] when g is nil;
// the permit is then the zero Permit, whose Release does nothing.
//
// The caller owns the permit and must release it on every path: defer p.Release().
func (g *Gate) TryAcquire() (Permit, error) {
	if g == nil {
		return Permit{}, nilGate()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if rejected := g.admitLocked(); rejected != nil {
		return Permit{}, rejected
	}
	if g.free == nil {
		g.growLocked()
	}
	p := Permit{gate: g, slot: g.free, admission: g.admitted}
	g.free = p.slot.next
	p.slot.admission = p.admission
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
	defer g.mu.Unlock()
	if p.slot.admission != p.admission {
		return false
	}
	p.slot.admission = 0
	p.slot.next = g.free
	g.free = p.slot
	g.leaveLocked()
	return true
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
	rejected := g.admitLocked()
	g.mu.Unlock()
	if rejected != nil {
		return rejected
	}
	defer g.leave() // only this call can end the admission, so it needs no slot
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

// Submit starts an asynchronous operation if the gate admits it. It calls start once, on the caller's goroutine; the
// operation is then in flight until done is called, even if Submit has returned long before.
//
// The first call of done frees the slot, and later ones do nothing: done may be called by any goroutine, by several at
// once, and before start returns. Call it when the work has ended, not when it was asked to: a slot that is freed by a
// cancellation is taken again while the canceled work still runs. If done is never called, the slot is never freed.
//
// A start that fails started nothing: when it returns an error, panics or calls runtime.Goexit, the slot is freed, and
// done does nothing any more. Submit returns start's own error, and recovers no panic; a [*RejectedError], and start was
// not called; or an [*InvalidError] when g or start is nil. It blocks as long as start does, never for a slot, and
// allocates done. A rejection allocates nothing.
func (g *Gate) Submit(start func(done func()) error) error {
	if start == nil {
		return nilFunc("start")
	}
	permit, err := g.TryAcquire()
	if err != nil {
		return err
	}
	started := false
	defer func() {
		if !started {
			permit.Release()
		}
	}()
	if err := start(func() { permit.Release() }); err != nil {
		return err
	}
	started = true
	return nil
}

// admitLocked decides, and counts the decision; nil: admitted.
func (g *Gate) admitLocked() *RejectedError {
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

// growLocked adds free slots. The caller has been admitted, so Limit is not 0.
func (g *Gate) growLocked() {
	slots := make([]slot, min(slotsAtOnce, g.config.Limit))
	for i := range slots {
		slots[i].next = g.free
		g.free = &slots[i]
	}
}

// leave ends an admission that has no slot.
func (g *Gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leaveLocked()
}

// leaveLocked counts the end of one admission, and wakes the callers of Drain after the last.
func (g *Gate) leaveLocked() {
	g.released++
	if g.drained != nil && g.admitted == g.released {
		close(g.drained)
		g.drained = nil
	}
}

// Stats are a gate's counters at one instant, as numbers of operations. The uint64 counters never fall.
type Stats struct {
	Limit    int // Config.Limit
	InFlight int // admitted and not yet released
	// Admitted counts admissions, Released those that ended: Admitted = Released + InFlight, always.
	Admitted, Released uint64
	// Rejected counts rejections, RejectedClosed those by a closed gate. Admitted + Rejected is the number of
	// calls decided.
	Rejected, RejectedClosed uint64
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
	}
}

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
	case <-drained: // both happened
		return nil
	default:
		return ctx.Err()
	}
}
