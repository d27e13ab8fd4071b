//go:build !explore

// The atomics under the limiter are named here, so that the build tag "explore" can put a controlled scheduler in their place.

package limiter

import (
	"sync"
	"sync/atomic"
	"time"
)

type (
	word  = atomic.Uint64
	mutex = sync.Mutex
	pool  = sync.Pool

	rulingPointer = atomic.Pointer[ruling]
)

// wait blocks until w was taken out of the queue, or something else may end its waiting. True: it was taken out, and what
// was sent to it has been received.
func wait(w *waiter, done <-chan struct{}, timeout <-chan time.Time) bool {
	select {
	case <-w.ready:
		return true
	case <-done:
	case <-timeout:
	}
	return false
}
