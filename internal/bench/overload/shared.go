//go:build linux

// What the server counts, in memory that the generator can read while the server has no processor to answer with.

package main

import (
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// counters lie in a file that both processes have mapped.
type counters struct {
	entered  atomic.Uint64 // requests that reached the first line of the handler
	executed atomic.Uint64 // requests whose work was done
	wasted   atomic.Uint64 // of those, too late for whoever asked
	accept   [buckets]atomic.Uint64
}

// Waits are counted in ranges, 32 for each doubling from 1 us on.
const (
	buckets   = 24 * perDouble
	perDouble = 32
)

func bucketOf(d time.Duration) int {
	us := float64(d) / float64(time.Microsecond)
	if us < 1 {
		return 0
	}
	return min(buckets-1, int(perDouble*math.Log2(us)))
}

// snapshot is a copy of the counters.
type snapshot struct {
	entered, executed, wasted uint64
	accept                    [buckets]uint64
}

func (c *counters) snapshot() (s snapshot) {
	s.entered, s.executed, s.wasted = c.entered.Load(), c.executed.Load(), c.wasted.Load()
	for i := range c.accept {
		s.accept[i] = c.accept[i].Load()
	}
	return s
}

// since is what was counted between two snapshots.
func (s snapshot) since(before snapshot) snapshot {
	s.entered -= before.entered
	s.executed -= before.executed
	s.wasted -= before.wasted
	for i := range s.accept {
		s.accept[i] -= before.accept[i]
	}
	return s
}

// acceptMedian is how long half of the requests were under way before the handler saw them, at most.
func (s snapshot) acceptMedian() time.Duration {
	var seen uint64
	for i, n := range &s.accept {
		if seen += n; 2*seen >= s.entered && seen > 0 {
			return time.Duration(math.Exp2(float64(i+1)/perDouble) * float64(time.Microsecond))
		}
	}
	return 0
}

// mapCounters maps the file, which is made if size says so.
func mapCounters(path string, create bool) (*counters, error) {
	size := int(unsafe.Sizeof(counters{}))
	flags := os.O_RDWR
	if create {
		flags |= os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // the mapping stays
	if create {
		if err := f.Truncate(int64(size)); err != nil {
			return nil, err
		}
	}
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping the counters: %w", err)
	}
	return (*counters)(unsafe.Pointer(&b[0])), nil
}
