// -fault: what goes wrong in a shop that serves, some time after it has opened. It is how the alert rules are tried on a real process.
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

// A fault is a bad deploy, as the flag names it; the zero fault is none.
type fault struct {
	hold    [routes]time.Duration // how long a query sleeps from then on, deaf to a caller who gives up on it
	control bool                  // the warden's sampler hangs
	given   string
}

// String and Set make it a flag.
func (f *fault) String() string { return f.given }

// Set reads "analytics=3s,control=hangs": how long a route's query sleeps, and that the warden's sampler hangs. What is not named stays well.
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

// strike makes the fault come true after so long, unless ctx ends before.
func (f *fault) strike(ctx context.Context, s *shop, after time.Duration) {
	select {
	case <-time.After(after):
		s.deploy(f.hold)
		s.silent.Store(f.control)
	case <-ctx.Done():
	}
}

// sampler is the warden's, until it hangs.
type sampler struct {
	warden.Sampler

	silent *atomic.Bool
	done   <-chan struct{} // the warden ends
}

// Sample blocks when it is silent, as if what it asks did not answer.
func (s sampler) Sample() monitor.Sample {
	if s.silent.Load() {
		<-s.done
	}
	return s.Sampler.Sample()
}
