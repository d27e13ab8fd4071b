//go:build !explore

// The atomics under the limiter are named here, so that the build tag "explore" can put a controlled scheduler in their place.

package limiter

import (
	"sync"
	"sync/atomic"
)

type (
	word  = atomic.Uint64
	mutex = sync.Mutex
	pool  = sync.Pool

	rulingPointer = atomic.Pointer[ruling]
)
