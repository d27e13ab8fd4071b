// The gate: who may start, and what it knows about those who did.

package admission

import "math"

// Config describes a gate. The zero value is a gate that admits nobody.
type Config struct {
	// Name appears in errors, events and metrics; it may be empty.
	Name string
	// Limit is how many operations may be in flight at once. 0 refuses everything, which makes a kill switch; a
	// negative limit is an error. There is room for 2^32-1 at most, more than fits into memory: any greater limit
	// means that.
	Limit int
	// Observer, if not nil, is told of every admission, refusal and release.
	Observer Observer
}

// Gate bounds how many operations are in flight. All its methods may be called by any number of goroutines. It starts no
// goroutine and needs no cleaning up. The zero value refuses everything, like Limit 0. A Gate must not be copied.
type Gate struct {
	home     word // hint: how many lines hold credits, 0 while none does
	observer Observer
	label    string
	limit    int
	total    uint64 // credits there are
	used     int    // lines that may hold credits
	perLine  int    // slots of each that may
	refusals [reasons]RejectedError
	pool     pool // slots that give central admissions their identity

	// Behind the 8 bytes that the allocator puts before an object like this, central begins a cache line, and so do
	// the lines. TestLayout fails when that is no longer so, which would make a gate slower, not wrong.
	_ [136]byte

	central        word
	mu             mutex           // held to change modes, to count exactly, and by Close and Drain; never while foreign code runs
	calmed         int             // guarded by mu: releases seen since the last gather that found the gate at most half full
	spilled        uint64          // guarded by mu: central admissions that no longer fit into the central word
	waiters        []chan struct{} // guarded by mu: one for each call waiting in Drain
	observerPanics word

	lines [maxLines]line
}

// New returns an open gate. The error, an [*InvalidError], says that Limit is negative.
//
// A gate takes about 2.5 KiB: its capacity is kept near the cores that use it.
func New(cfg Config) (*Gate, error) {
	if cfg.Limit < 0 {
		return nil, &InvalidError{Field: "Config.Limit", Value: cfg.Limit, Allowed: "0 (refuse everything) or more"}
	}
	lines, perLine := shape(cfg.Limit)
	return newGate(cfg, lines, perLine), nil
}

// shape decides how many credits may lie in slots. Of few, as many as one line holds. Of many, up to half, in as many
// lines as can have four each or more, while the rest is there for whoever finds his line empty.
func shape(limit int) (lines, perLine int) {
	if limit < 32 {
		return 1, min(slotsPerLine, limit)
	}
	for lines = 2; lines < maxLines && lines*16 <= limit; {
		lines *= 2
	}
	return lines, min(slotsPerLine, limit/2/lines)
}

func newGate(cfg Config, lines, perLine int) *Gate {
	g := &Gate{
		observer: cfg.Observer,
		label:    cfg.Name,
		limit:    cfg.Limit,
		total:    min(uint64(cfg.Limit), math.MaxUint32),
		used:     lines,
		perLine:  perLine,
	}
	for r := range reasons {
		g.refusals[r] = RejectedError{Gate: cfg.Name, Reason: r, Limit: cfg.Limit}
	}
	g.pool.New = func() any {
		s := new(slot)
		s.w.Store(pooled)
		return s
	}
	g.central.Store(g.total)
	g.mu.Lock()
	g.spreadOut()
	g.mu.Unlock()
	return g
}

// TryAcquire admits the caller or refuses, at once; it never waits for capacity and, once warm, allocates nothing. The
// error is a [*RejectedError]; the permit is then the zero Permit, whose Release does nothing.
//
// Who calls it owns the permit and must release it, whatever happens: defer p.Release().
func (g *Gate) TryAcquire() (Permit, error) {
	if g.observer == nil {
		here := here()
		if lines := g.home.Load(); lines != 0 {
			l := g.line(here & (lines - 1))
			for i := range l.slots {
				if w, ok := l.slots[i].take(); ok {
					return Permit{g, &l.slots[i], w}, nil
				}
			}
		} else if g.full() {
			g.line(here).saturated.Add(1)
			return Permit{}, &g.refusals[Saturated]
		}
	}
	return g.tryAcquireSlow()
}

// tryAcquireSlow is TryAcquire when it is not so simple.
func (g *Gate) tryAcquireSlow() (Permit, error) {
	s, w, refused := g.admit()
	if refused != nil {
		return Permit{}, g.refuse(refused)
	}
	if s == nil {
		s, w = g.name()
	}
	p := Permit{g, s, w}
	if g.observer != nil {
		p.announce()
	}
	return p, nil
}

// Do runs fn if the gate admits it. fn is in flight until it returns, panics or calls runtime.Goexit; a panic is not
// recovered, so its stack stays whole. The error is fn's own; or a [*RejectedError], and fn was not called; or an
// [*InvalidError] when fn is nil. Do never waits for capacity and allocates nothing.
func (g *Gate) Do(fn func() error) error {
	if g.observer == nil && fn != nil {
		here := here()
		if lines := g.home.Load(); lines != 0 {
			s := &g.line(here & (lines - 1)).slots[0]
			if w, ok := s.take(); ok {
				defer g.leave(s, w)
				return fn()
			}
		} else if g.full() {
			g.line(here).saturated.Add(1)
			return &g.refusals[Saturated]
		}
	}
	return g.doSlow(fn)
}

// doSlow is Do when it is not so simple.
func (g *Gate) doSlow(fn func() error) error {
	if fn == nil {
		return nilFunc("fn")
	}
	s, w, refused := g.admit()
	if refused != nil {
		return g.refuse(refused)
	}
	if g.observer != nil {
		return g.doObserved(s, w, fn)
	}
	defer g.leave(s, w)
	return fn()
}

// Call is [Gate.Do] for a function with a result. On refusal the result is the zero value. A nil g is an [*InvalidError].
func Call[T any](g *Gate, fn func() (T, error)) (T, error) {
	var v T
	switch {
	case g == nil:
		return v, nilGate()
	case fn == nil:
		return v, nilFunc("fn")
	}
	err := g.Do(func() (err error) {
		v, err = fn()
		return err
	})
	return v, err
}

// Limit is Config.Limit.
func (g *Gate) Limit() int { return g.limit }
