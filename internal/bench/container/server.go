// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The server: one way of limiting in front of one kind of work, in a process of its own that may be killed.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// serveArgs configure a server.
type serveArgs struct {
	Work  work
	Mode  string // bare, ours, or the number of a constant limit
	Group string // the cgroup to enter; "": none
	Trace string // the file to write readings to; "": none
}

// serve is the life of a server. It prints its address and ends with its standard input.
func serve(args string) error {
	var a serveArgs
	if err := json.Unmarshal([]byte(args), &a); err != nil {
		return err
	}
	if a.Group != "" { // before anything is allocated, and before the warden looks for its limit
		pid := []byte(strconv.Itoa(os.Getpid()))
		if err := os.WriteFile(filepath.Join(a.Group, "cgroup.procs"), pid, 0); err != nil {
			return err
		}
	}
	var k worker
	k.work = a.Work
	var handler http.Handler = &k
	r := &reporter{worker: &k, began: time.Now()}
	r.clear()
	if a.Mode != "bare" {
		var cfg warden.Config
		if n, err := strconv.Atoi(a.Mode); err == nil {
			cfg.Control = control.Config{Min: n, Max: n, Initial: n}
		} else if a.Mode != "ours" {
			return fmt.Errorf("mode %q; allowed: bare, ours, a number", a.Mode)
		}
		w, err := warden.New(cfg)
		if err != nil {
			return err
		}
		m, err := wardenhttp.New(w, wardenhttp.Config{})
		if err != nil {
			return err
		}
		handler, r.warden = m.Handler(handler), w
		go func() { _ = w.Run(context.Background()) }()
	}
	if a.Trace != "" {
		f, err := os.Create(a.Trace)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		r.trace = f
		if _, err := fmt.Fprintln(f, traceHeader); err != nil {
			return err
		}
	}
	go r.run()
	if a.Work.CacheMB > 0 {
		go k.grow()
	}

	mux := http.NewServeMux()
	mux.Handle("/work", handler)
	mux.HandleFunc("/begin", func(http.ResponseWriter, *http.Request) { r.clear() })
	mux.HandleFunc("/stats", func(rw http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(rw).Encode(r.read()) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	s := &http.Server{Handler: mux, ErrorLog: log.New(io.Discard, "", 0)} //nolint:gosec // the only client is the lab
	go func() { _ = s.Serve(l) }()
	_, _ = os.Stdin.Read(make([]byte, 1))
	return errors.Join(s.Close(), r.err)
}

// A report is what a server says of itself since it began, or was told to begin again.
type report struct {
	Samples int
	// Codes counts the samples with a reason of a code, and under code/tighten those in which it lowers the limit.
	Codes map[string]int
	// Least and Most bound the limit; LeastMemory is the least while memory lowered it, 0: it never did.
	Least, Most, LeastMemory int
	Running, PeakRunning     int
	Collections              int
	LiveMB                   float64 // the most
	Collector                float64 // of the processor time used, since the process began
	LastReason               string  // of memory, else of the last sample
}

// reporter follows the warden's readings and the runtime's metrics.
type reporter struct {
	worker *worker
	warden *warden.Warden
	began  time.Time
	trace  io.Writer
	err    error

	mu       sync.Mutex // guards all below
	now      report
	seq      uint64
	readings []warden.Reading
	cycles   uint64 // at the last clear
}

const traceHeader = "seconds,running,limit,in_flight,queued,live_mb,goal_mb,objects_mb,collections,collector,rss_mb," +
	"sampled_live_mb,sampled_limit_mb,utilization,lag_p90_ms,share,pressure,reasons"

func (r *reporter) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = report{Codes: map[string]int{}}
	r.cycles = uint64(readRuntime().collections)
}

func (r *reporter) read() report {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.updateLocked()
	out := r.now
	out.Codes = maps.Clone(r.now.Codes)
	return out
}

// run updates the report in time to lose no reading, and writes the trace.
func (r *reporter) run() {
	for range time.Tick(100 * time.Millisecond) {
		r.mu.Lock()
		m := r.updateLocked()
		if r.trace != nil && r.err == nil {
			r.err = r.writeLocked(m)
		}
		r.mu.Unlock()
	}
}

func (r *reporter) updateLocked() runtimeFacts {
	m := readRuntime()
	r.now.LiveMB = max(r.now.LiveMB, m.live/mb)
	r.now.Collections, r.now.Collector = int(uint64(m.collections)-r.cycles), m.collector
	r.now.Running = int(r.worker.running.Load())
	r.now.PeakRunning = max(r.now.PeakRunning, r.now.Running)
	r.readings = r.warden.History(r.readings[:0], r.seq)
	for i := range r.readings {
		r.countLocked(&r.readings[i])
	}
	return m
}

func (r *reporter) countLocked(reading *warden.Reading) {
	d := &reading.Decision
	r.seq = d.Seq
	r.now.Samples++
	if limit := d.TargetConcurrency; r.now.Most == 0 {
		r.now.Least, r.now.Most = limit, limit
	} else {
		r.now.Least, r.now.Most = min(r.now.Least, limit), max(r.now.Most, limit)
	}
	counted := map[string]bool{}
	for _, reason := range d.Reasons {
		text := reason.String()
		keys := []string{reason.Code()}
		if strings.HasSuffix(text, "(tighten)") { // a reason has no other way to tell its direction
			keys = append(keys, reason.Code()+"/tighten")
		}
		for _, key := range keys {
			if !counted[key] {
				counted[key] = true
				r.now.Codes[key]++
			}
		}
		if reason.Code() == "memory" || r.now.Codes["memory"] == 0 {
			r.now.LastReason = text
		}
	}
	if limit := d.TargetConcurrency; counted["memory/tighten"] && (r.now.LeastMemory == 0 || limit < r.now.LeastMemory) {
		r.now.LeastMemory = limit
	}
}

func (r *reporter) writeLocked(m runtimeFacts) error {
	latest := r.warden.Latest() // zero without a warden
	s, d := &latest.Sample, &latest.Decision
	var reasons []string
	for _, reason := range d.Reasons {
		reasons = append(reasons, reason.String())
	}
	share := -1.0
	if s.Share.OK {
		share = s.Share.Value
	}
	rss, _ := residentOf(os.Getpid())
	_, err := fmt.Fprintf(r.trace, "%.2f,%d,%d,%d,%d,%.1f,%.1f,%.1f,%.0f,%.3f,%.0f,%.1f,%.0f,%.3f,%.1f,%.3f,%.3f,%q\n",
		time.Since(r.began).Seconds(), r.now.Running, d.TargetConcurrency, latest.Limiter.Running, latest.Limiter.Queued,
		m.live/mb, m.goal/mb, m.objects/mb, m.collections, m.collector, float64(rss)/mb, float64(s.Memory.Live)/mb,
		float64(s.Memory.Limit)/mb, s.Utilization.Value, float64(s.Lag.P90)/1e6, share, latest.Pressure.Value,
		strings.Join(reasons, "; "))
	return err
}

// runtimeFacts are read from the runtime: bytes, a count, and the collector's share of the processor time used.
type runtimeFacts struct{ live, goal, objects, collections, collector float64 }

func readRuntime() runtimeFacts {
	names := []string{"/gc/heap/live:bytes", "/gc/heap/goal:bytes", "/memory/classes/heap/objects:bytes",
		"/gc/cycles/total:gc-cycles", "/cpu/classes/gc/total:cpu-seconds", "/cpu/classes/total:cpu-seconds",
		"/cpu/classes/idle:cpu-seconds"}
	all := make([]metrics.Sample, len(names))
	for i, name := range names {
		all[i].Name = name
	}
	metrics.Read(all)
	value := func(i int) float64 {
		if all[i].Value.Kind() == metrics.KindFloat64 {
			return all[i].Value.Float64()
		}
		return float64(all[i].Value.Uint64())
	}
	f := runtimeFacts{live: value(0), goal: value(1), objects: value(2), collections: value(3)}
	if used := value(5) - value(6); used > 0 {
		f.collector = value(4) / used
	}
	return f
}
