//go:build explore

// The atomics under the gate, with a scheduler before every step: the tag "explore" compiles the real gate on these.

package admission

import "sync/atomic"

// explorer, while set, decides which of its threads takes the next step. Only one of them runs at a time.
var explorer interface {
	step(blocked func() bool) // returns when it is the caller's turn and blocked, if any, is false
	thread() uint64
}

func step(blocked func() bool) {
	if explorer != nil {
		explorer.step(blocked)
	}
}

type word struct{ v atomic.Uint64 }

func (w *word) Load() uint64           { step(nil); return w.v.Load() }
func (w *word) Store(v uint64)         { step(nil); w.v.Store(v) }
func (w *word) Add(d uint64) uint64    { step(nil); return w.v.Add(d) }
func (w *word) Or(mask uint64) uint64  { step(nil); return w.v.Or(mask) }
func (w *word) And(mask uint64) uint64 { step(nil); return w.v.And(mask) }
func (w *word) CompareAndSwap(old, new uint64) bool {
	step(nil)
	return w.v.CompareAndSwap(old, new)
}

type mutex struct{ locked bool }

func (m *mutex) Lock() {
	step(func() bool { return m.locked })
	m.locked = true
}

func (m *mutex) TryLock() bool {
	step(nil)
	if m.locked {
		return false
	}
	m.locked = true
	return true
}

func (m *mutex) Unlock() {
	step(nil)
	m.locked = false
}

// pool hands out what was put in last, so that reuse is as quick as it can be.
type pool struct {
	New  func() any
	free []any
}

func (p *pool) Get() any {
	if n := len(p.free); n > 0 {
		v := p.free[n-1]
		p.free = p.free[:n-1]
		return v
	}
	return p.New()
}

func (p *pool) Put(v any) { p.free = append(p.free, v) }

// countTries is as low as it can be, so that the explorer sees the way that Stats seldom takes.
const countTries = 1

// here is the thread's number: threads have a line of their own as far as there are lines.
func here() uint64 {
	if explorer == nil {
		return 0
	}
	return explorer.thread()
}
