//go:build !explore

// The atomics under the gate are named here, so that the build tag "explore" can put a controlled scheduler in their place.

package admission

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

type (
	word  = atomic.Uint64
	mutex = sync.Mutex
	pool  = sync.Pool
)

// countTries is how often Stats looks for two counts between which nothing was admitted, before it gathers all credits.
const countTries = 4

// here is a number that goroutines running at the same time seldom share and that one goroutine keeps for long: a hash
// of the page that its stack lies on. The address is only hashed, never followed; any number would be correct.
func here() uint64 {
	var mark byte
	return uint64(uintptr(unsafe.Pointer(&mark))>>11) * 0x9E3779B97F4A7C15 >> 56
}
