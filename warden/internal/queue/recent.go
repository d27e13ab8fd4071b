// The last of what was delayed or refused.

package queue

import "sync"

// Recent keeps the last n values that were added. It has a lock of its own.
type Recent[T any] struct {
	mu    sync.Mutex
	limit int
	ring  []T
	next  int // where the next one goes once the ring is full
}

// NewRecent keeps the last n, 1 or more.
func NewRecent[T any](n int) *Recent[T] { return &Recent[T]{limit: n} }

// Add keeps v, and forgets the oldest if there is no more room.
func (r *Recent[T]) Add(v T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ring) < r.limit {
		r.ring = append(r.ring, v)
		return
	}
	r.ring[r.next] = v
	r.next = (r.next + 1) % r.limit
}

// All are the values that are kept, the oldest first.
func (r *Recent[T]) All() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(append(make([]T, 0, len(r.ring)), r.ring[r.next:]...), r.ring[:r.next]...)
}
