// -fault: faults injected into a running shop, to see the console and the alert rules at work on a real process.
package main

import (
	"context"
	"fmt"
	"strings"
	"time"

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
		name, value, _ := strings.Cut(part, "=")
		d, err := time.ParseDuration(value)
		known := part == "control=hangs"
		next.control = next.control || known
		for r := range routes {
			if name == r.String() && err == nil && d >= 0 && d <= 24*time.Hour {
				next.hold[r], known = d, true
			}
		}
		if !known {
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

// sampler is the warden's sampler, which can hang.
type sampler struct {
	*monitor.Sampler

	shop *shop
}

// Sample blocks while the sampler hangs, until the shop closes.
func (s sampler) Sample() monitor.Sample {
	if s.shop.hung.Load() {
		<-s.shop.ctx.Done()
	}
	return s.Sampler.Sample()
}
