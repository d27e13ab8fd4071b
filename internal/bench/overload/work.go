// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The workloads: the server's work for a request, the client's patience, and the measured loads.

package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/pool"
)

// A workload is the work of a request, with the client that sends it.
type workload struct {
	name, about string
	cpu         time.Duration // processor time
	heavy       time.Duration // processor time of one request in ten; 0: all take cpu
	points      bool          // scheduling points while computing
	app         bool          // the application instead
	wait        time.Duration // for anything but a processor
	connections int           // the wait needs one of these; 0: unlimited
	processors  int           // of the server; 0: 1
	right       int           // best constant limit: more only queue, fewer leave capacity idle; 0: there is none
	patience    time.Duration // time until the client leaves; 0: 250 ms
	loads       []float64     // of a full run, relative to the capacity; nil: 0.7, 2, 4 and 8
	length      time.Duration // of a cell, if longer than the run's
}

// workloads returns all of them in the order of the report.
func workloads() []workload {
	all := []workload{
		{name: "cpu4", about: "4 ms of computing in one piece", cpu: 4 * time.Millisecond, right: 2},
		{name: "cpu4y", about: "4 ms of computing, a scheduling point every 250 us", cpu: 4 * time.Millisecond, points: true, right: 2},
		{name: "cpu4x2", about: "4 ms of computing in one piece, two processors", cpu: 4 * time.Millisecond, processors: 2, right: 4},
		{name: "costs", about: "1 ms of computing, 30 ms one time in ten", cpu: time.Millisecond, heavy: 30 * time.Millisecond,
			right: 2},
		{name: "app", about: "an application: SQLite, JSON, html/template, garbage", app: true, right: 2},
		{name: "mixed", about: "2 ms of computing, 20 ms of waiting, 2 ms of computing", cpu: 4 * time.Millisecond,
			wait: 20 * time.Millisecond, right: 8},
		{name: "downstream", about: "40 ms on one of 10 connections", wait: 40 * time.Millisecond, connections: 10, right: 12},
	}
	for i := range all {
		w := &all[i]
		w.processors = max(w.processors, 1)
		w.patience = 250 * time.Millisecond
		w.loads = []float64{0.7, 2, 4, 8}
	}
	for _, d := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 10 * time.Second} {
		all = append(all, workload{
			name: "wait" + d.String(), about: fmt.Sprintf("%g s of waiting, bound by nothing", d.Seconds()), wait: d,
			processors: 1, patience: 3 * d, loads: []float64{0.03, 0.12, 0.5}, length: 8*time.Second + 5*d,
		})
	}
	return all
}

func workloadNamed(name string) (workload, error) {
	all := workloads()
	if i := slices.IndexFunc(all, func(w workload) bool { return w.name == name }); i >= 0 {
		return all[i], nil
	}
	return workload{}, fmt.Errorf("there is no workload %q", name)
}

// atOnce replaces the capacity of an unbound workload: this many calls in flight, slightly fewer than the 1024 that a warden
// queues by default.
const atOnce = 1000

// unbound reports whether the server can run any number of calls at a time.
func (w *workload) unbound() bool { return !w.computes() && w.connections == 0 }

// computes reports whether the processor is the bottleneck.
func (w *workload) computes() bool { return w.cpu > 0 || w.app }

// pooled reports whether the work needs a connection of a pool.
func (w *workload) pooled() bool { return w.connections > 0 || w.app }

// loadName formats a load for readers.
func (w *workload) loadName(load float64) string {
	if w.unbound() {
		return fmt.Sprintf("%.0f/s", load*atOnce/w.wait.Seconds())
	}
	return fmt.Sprintf("%gx", load)
}

// heavyShare is the fraction of heavy requests, where there are any.
const heavyShare = 0.1

// weight is the work of a request relative to the mean.
func (w *workload) weight(heavy bool) float64 {
	if w.heavy == 0 {
		return 1
	}
	mean := (1-heavyShare)*float64(w.cpu) + heavyShare*float64(w.heavy)
	if heavy {
		return float64(w.heavy) / mean
	}
	return float64(w.cpu) / mean
}

// A worker does the work of one workload in one process.
type worker struct {
	workload
	rounds  float64 // of spin, per millisecond
	patient bool    // the tasks are
	free    chan struct{}
	app     *application
	sink    atomic.Uint64 // prevents the compiler from removing the computation
}

func newWorker(w workload, roundsPerMs float64) (k *worker, err error) {
	k = &worker{workload: w, rounds: roundsPerMs}
	if w.connections > 0 {
		k.free = make(chan struct{}, w.connections)
	}
	if w.app {
		k.app, err = newApplication()
	}
	return k, err
}

// pool is what the work waits for, as its users know it: the connections in use, of how many; of a workload with pooled.
func (k *worker) pool() monitor.Pool {
	if k.app != nil {
		return pool.SQL("sqlite", k.app.db)
	}
	return monitor.Pool{Name: "connections", Stats: func() monitor.PoolStats {
		return monitor.PoolStats{InUse: len(k.free), Max: cap(k.free)}
	}}
}

func (k *worker) close() {
	if k.app != nil {
		k.app.close()
	}
}

// do is the work of one request. ctx ends the wait for a connection and a query; other work is finished even if the client has
// left.
func (k *worker) do(ctx context.Context, heavy bool) ([]byte, error) {
	if k.app != nil {
		return k.app.do(ctx)
	}
	if k.free != nil {
		select {
		case k.free <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		defer func() { <-k.free }()
	}
	cpu := k.cpu
	if heavy {
		cpu = k.heavy
	}
	k.compute(cpu / 2)
	if k.wait > 0 {
		time.Sleep(k.wait)
	}
	k.compute(cpu - cpu/2)
	return []byte("done"), nil
}

// compute spins, in pieces of 250 us if the workload has scheduling points.
func (k *worker) compute(d time.Duration) {
	rounds := func(d time.Duration) int { return int(k.rounds * ms(d)) }
	if !k.points {
		k.sink.Add(spin(rounds(d)))
		return
	}
	for piece := 250 * time.Microsecond; d > 0; d -= piece {
		k.sink.Add(spin(rounds(min(piece, d))))
		runtime.Gosched()
	}
}

// spin works in registers, so its time does not depend on caches and memory.
func spin(rounds int) uint64 {
	x := uint64(rounds) | 1
	for range rounds {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// calibrate returns the rounds of spin per millisecond here: the fastest of several tries, because every disturbance makes it
// slower.
func calibrate() float64 {
	const rounds = 1 << 20
	var sink uint64
	best := time.Hour
	for range 40 {
		start := time.Now()
		sink += spin(rounds)
		best = min(best, time.Since(start))
	}
	runtime.KeepAlive(sink)
	return rounds / ms(best)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
