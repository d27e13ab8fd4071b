// -fault: faults injected into a running shop, to test the alert rules on a real process.
package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/monitor"
)

// A fault is what -fault injects; the zero value injects nothing.
type fault struct {
	hold    [routes]time.Duration // query duration; a query keeps running when its caller times out
	control bool                  // the warden's sampler hangs
	given   string
}

// String implements flag.Value.
func (f *fault) String() string { return f.given }

// Set implements flag.Value. It parses a list such as "analytics=3s,control=hangs".
func (f *fault) Set(given string) error {
	next := fault{given: given}
	for part := range strings.SplitSeq(given, ",") {
		if part == "control=hangs" {
			next.control = true
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		d, err := time.ParseDuration(value)
		known := false
		for r := range routes {
			if name == r.String() {
				next.hold[r], known = d, true
			}
		}
		if err != nil || !known || d < 0 || d > 24*time.Hour {
			return &InvalidError{"-fault", fmt.Sprintf("%q", part), "a list of ROUTE=TIME (0s to 24h) and control=hangs"}
		}
	}
	*f = next
	return nil
}

// inject injects the fault after a delay, unless ctx ends first.
func (f *fault) inject(ctx context.Context, s *shop, after time.Duration) {
	select {
	case <-time.After(after):
		s.deploy(f.hold)
		s.hung.Store(f.control)
	case <-ctx.Done():
	}
}

// sampler is a warden.Sampler that can hang.
type sampler struct {
	warden.Sampler

	hung *atomic.Bool
	done <-chan struct{} // closed when the warden stops
}

// Sample blocks while the sampler hangs, until the warden stops.
func (s sampler) Sample() monitor.Sample {
	if s.hung.Load() {
		<-s.done
	}
	return s.Sampler.Sample()
}
