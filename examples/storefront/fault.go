// -fault: faults injected into a running shop, to see the console and the alert rules at work on a real process.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stopbank/stopbank/warden/monitor"
)

// A fault is what -fault injects; the zero value injects nothing.
type fault struct {
	hold    [routes]time.Duration // query duration; a query keeps running when its caller times out
	every   [routes]int           // only every so manyeth query takes that long; 0: every one
	handler [routes]string        // hangs: the handler never returns; streams: it answers until the client leaves; panics; leaks: its connection
	control bool                  // the warden's sampler hangs
	memory  bool                  // leaks
	given   string
}

const (
	hangs   = "hangs"
	streams = "streams"
	panics  = "panics"
	leaks   = "leaks"
)

// String implements flag.Value.
func (f *fault) String() string { return f.given }

// Set implements flag.Value. It parses a list such as "analytics=3s,checkout=1.5s/4,admin=hangs,control=hangs".
func (f *fault) Set(given string) error {
	next := fault{given: given}
	for part := range strings.SplitSeq(given, ",") {
		if name, value, _ := strings.Cut(part, "="); !next.set(name, value) {
			return &InvalidError{"-fault", fmt.Sprintf("%q", part),
				"a list of ROUTE=TIME (0s to 24h), ROUTE=TIME/N, ROUTE=hangs, ROUTE=streams, ROUTE=panics, ROUTE=leaks, control=hangs and memory=leaks"}
		}
	}
	*f = next
	return nil
}

// set sets one part, and reports whether it is known.
func (f *fault) set(name, value string) bool {
	switch name + "=" + value {
	case "control=hangs":
		f.control = true
		return true
	case "memory=leaks":
		f.memory = true
		return true
	}
	for r := range routes {
		if name != r.String() {
			continue
		}
		if value == hangs || value == streams || value == panics || value == leaks {
			f.handler[r] = value
			return true
		}
		duration, every, _ := strings.Cut(value, "/")
		d, err := time.ParseDuration(duration)
		n := 0
		if err == nil && every != "" {
			n, err = strconv.Atoi(every)
		}
		f.hold[r], f.every[r] = d, n
		return err == nil && d >= 0 && d <= 24*time.Hour && n >= 0
	}
	return false
}

// inject injects the fault after a delay, unless ctx ends first.
func (f *fault) inject(ctx context.Context, s *shop, after time.Duration) {
	if !pause(ctx, after) {
		return
	}
	s.deploy(*f)
	if f.memory {
		grow(ctx)
	}
}

// grow leaks 256 MiB within a minute, and keeps them until ctx ends.
func grow(ctx context.Context) {
	var leaked [512][]byte
	for i := range leaked {
		leaked[i] = make([]byte, 512<<10)
		for at := 0; at < len(leaked[i]); at += 4096 { // the operating system counts what is written
			leaked[i][at] = 1
		}
		if !pause(ctx, 100*time.Millisecond) {
			return
		}
	}
	<-ctx.Done()
	clear(leaked[:])
}

// pause reports whether it lasted, or ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// holds returns how long the next query of a route keeps its connection busy.
func (s *shop) holds(r route) time.Duration {
	f := s.fault.Load()
	if n := f.every[r]; n > 0 && s.queries[r].Add(1)%int64(n) != 0 {
		return 0
	}
	return f.hold[r]
}

// handled reports whether a fault has taken the place of a route's handler.
func (s *shop) handled(w http.ResponseWriter, req *http.Request, r route) bool {
	switch s.fault.Load().handler[r] {
	case hangs: // as on a lock that nobody releases: not even the end of the request ends it
		<-s.ctx.Done()
	case streams:
		ctx, stop := context.WithCancel(req.Context())
		closing := context.AfterFunc(s.ctx, stop)
		defer closing()
		defer stop()
		flush := http.NewResponseController(w)
		for err := flush.SetWriteDeadline(time.Time{}); err == nil && pause(ctx, time.Second); {
			_, err = io.WriteString(w, "data: an order\n\n")
			err = errors.Join(err, flush.Flush())
		}
	case panics: // as on a map that nobody has made
		var sold map[string]int
		sold[r.String()]++ //nolint:govet,staticcheck // the fault
	default:
		return false
	}
	return true
}

// sampler is the warden's sampler, which can hang.
type sampler struct {
	*monitor.Sampler

	shop *shop
}

// Sample blocks while the sampler hangs, until the shop closes.
func (s sampler) Sample() monitor.Sample {
	if s.shop.fault.Load().control {
		<-s.shop.ctx.Done()
	}
	return s.Sampler.Sample()
}
