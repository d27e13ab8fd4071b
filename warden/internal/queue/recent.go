// SPDX-License-Identifier: Apache-2.0

// The last delayed or rejected tasks.

package queue

import "sync"

// Recent keeps the last n values that were added. It has a lock of its own.
type Recent[T any] struct {
	mu    sync.Mutex
	limit int
	ring  []T
	next  int // where the next one goes once the ring is full
}

// NewRecent returns a Recent that keeps the last n values, 1 or more.
func NewRecent[T any](n int) *Recent[T] { return &Recent[T]{limit: n} }

// Add adds v, and drops the oldest value if there are more than n.
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

// All returns the kept values, oldest first.
func (r *Recent[T]) All() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(append(make([]T, 0, len(r.ring)), r.ring[r.next:]...), r.ring[:r.next]...)
}
