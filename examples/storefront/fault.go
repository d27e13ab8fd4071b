// -fault: faults injected into a running shop, to see the console and the alert rules at work on a real process.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stopbank/stopbank/warden/monitor"
)

// A fault is what -fault injects; the zero value injects nothing.
type fault struct {
	hold    [routes]time.Duration // query duration; a query keeps running when its caller times out
	every   [routes]int           // only every so manyeth query takes that long; 0: every one
	handler [routes]string        // hangs: the handler never returns; streams: it answers until the client leaves; panics; leaks: its connection
	given   string

	control  bool // the warden's sampler hangs
	leaked   bool // memory is kept, more and more
	cached   bool // memory is kept at once, in many small objects
	locked   bool // somebody's transaction keeps the write lock of the database
	closed   bool // the limiter, while the process serves on
	critical bool // each request of a route
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
				"a list of ROUTE=TIME (0s to 24h), ROUTE=TIME/N, ROUTE=hangs, ROUTE=streams, ROUTE=panics, ROUTE=leaks, control=hangs, " +
					"memory=leaks, memory=cached, database=locked, limiter=closed and priority=critical"}
		}
	}
	*f = next
	return nil
}

// set sets one part, and reports whether it is known.
func (f *fault) set(name, value string) bool {
	whole := map[string]*bool{"control=hangs": &f.control, "memory=leaks": &f.leaked, "memory=cached": &f.cached,
		"database=locked": &f.locked, "limiter=closed": &f.closed, "priority=critical": &f.critical}
	if injected := whole[name+"="+value]; injected != nil {
		*injected = true
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
	if f.closed {
		s.warden.Limiter().Close()
	}
	var kept sync.WaitGroup
	defer kept.Wait()
	for given, keep := range map[*bool]func(context.Context){&f.leaked: grow, &f.cached: cache, &f.locked: s.lock} {
		if *given {
			kept.Go(func() { keep(ctx) })
		}
	}
}

// cache keeps a hundred MiB and more from one moment to the next, until ctx ends: two million sessions, each of which the garbage
// collector has to visit.
func cache(ctx context.Context) {
	type session struct {
		next *session
		_    [48]byte // its customer
	}
	var all *session
	for range 2 << 20 {
		all = &session{next: all}
	}
	<-ctx.Done()
	runtime.KeepAlive(all)
}

// lock begins a transaction that may write, as somebody at a prompt who then goes home, and ends it with ctx. Others read; who
// writes waits for as long as the database lets them, and fails.
func (s *shop) lock(ctx context.Context) {
	db, err := sql.Open("sqlite", s.source())
	if err != nil {
		return
	}
	defer db.Close()
	for {
		if conn, err := db.Conn(ctx); err == nil {
			_, err = conn.ExecContext(ctx, "BEGIN IMMEDIATE")
			if err == nil {
				<-ctx.Done()
			}
			_ = conn.Close() // with its transaction, when db closes
		}
		if !pause(ctx, 10*time.Millisecond) { // others were writing
			return
		}
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
