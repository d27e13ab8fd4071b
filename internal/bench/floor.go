// The floors: the least that code can do and still count, written inline so that nothing is cheaper.

package main

import (
	"sync/atomic"
	"unsafe"
)

// counter is a bare bound: one word, one compare-and-swap in, one add out. No protection against a second release, no
// statistics, no panic safety.
type counter struct {
	_     [64]byte
	n     atomic.Int64
	limit int64
	_     [64]byte
}

func (c *counter) acquire() bool {
	for {
		n := c.n.Load()
		if n >= c.limit {
			return false
		}
		if c.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (c *counter) release() { c.n.Add(-1) }

// doDeferred is what any Do must pay for, so that a panic of fn releases.
func (c *counter) doDeferred(fn func() error) error {
	if !c.acquire() {
		return errFull
	}
	defer c.release()
	return fn()
}

// sharded is a counter of events that goroutines seldom share.
type sharded [16]struct {
	n atomic.Uint64
	_ [120]byte
}

func (s *sharded) count() {
	var mark byte
	h := uint64(uintptr(unsafe.Pointer(&mark))>>11) * 0x9E3779B97F4A7C15 >> 56
	s[h&15].n.Add(1)
}
