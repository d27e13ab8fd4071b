// The flight recorder: the last explanations of what was delayed or refused.

package limiter

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// entry is one explanation, immutable once it is recorded.
type entry struct {
	number uint64 // in order of recording, from 1
	is     Explanation
}

// recorder is a ring of pointers. Writers take a number and swap a pointer; nobody waits for anybody.
type recorder struct {
	last atomic.Uint64
	ring []atomic.Pointer[entry]
}

// record keeps e, and forgets the one that is as many older as the ring is long. A writer that was so slow that a whole
// round went by leaves the younger entry where it is.
func (l *Limiter) record(e *entry) {
	r := l.recorder.Load()
	if r == nil {
		l.recorder.CompareAndSwap(nil, &recorder{ring: make([]atomic.Pointer[entry], l.recent)})
		r = l.recorder.Load()
	}
	e.number = r.last.Add(1)
	at := &r.ring[e.number%uint64(len(r.ring))]
	for {
		old := at.Load()
		if old != nil && old.number > e.number || at.CompareAndSwap(old, e) {
			return
		}
	}
}

// Recent returns the explanations of the last tasks that were refused, or started after waiting: Config.Recent at most,
// the oldest first. It does not block and allocates the copy.
func (l *Limiter) Recent() []Explanation {
	r := l.recorder.Load()
	if r == nil {
		return nil
	}
	entries := make([]*entry, 0, len(r.ring))
	for i := range r.ring {
		if e := r.ring[i].Load(); e != nil {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b *entry) int { return cmp.Compare(a.number, b.number) })
	out := make([]Explanation, len(entries))
	for i, e := range entries {
		out[i] = e.is
	}
	return out
}
