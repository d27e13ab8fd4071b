// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The workloads: the server's work for a request, and the client's patience.

package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden"
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

	holdMB float64 // memory, until the answer; the wait ends if the client leaves
	tree   bool    // held as nodes of 48 bytes, which the collector has to follow, instead of in one piece

	service *service // another program does the work

	rate     float64       // capacity in requests per second; 0: it is measured
	patience time.Duration // time until the client leaves
	even     bool          // requests come at even distances
	warm     time.Duration // if not the usual
	length   time.Duration // of a cell, if longer than the usual
	busy     int           // processes that compute on the server's core
	shrinks  time.Duration // after which the server has one core left; 0: never
	env      []string      // of the server
	kill     int64         // bytes at which it is killed; 0: none
}

// overloadWork are the workloads of the experiment overload, in the order of the report.
func overloadWork() []workload {
	all := []workload{
		{name: "cpu4", about: "4 ms of computing in one piece", cpu: 4 * time.Millisecond},
		{name: "cpu4y", about: "4 ms of computing, a scheduling point every 250 us", cpu: 4 * time.Millisecond, points: true},
		{name: "costs", about: "1 ms of computing, 30 ms one time in ten", cpu: time.Millisecond, heavy: 30 * time.Millisecond},
		{name: "app", about: "an application: SQLite, JSON, html/template, garbage", app: true},
		{name: "mixed", about: "2 ms of computing, 20 ms of waiting, 2 ms of computing", cpu: 4 * time.Millisecond,
			wait: 20 * time.Millisecond},
		{name: "downstream", about: "40 ms on one of 10 connections", wait: 40 * time.Millisecond, connections: 10},
	}
	for i := range all {
		all[i].patience = 250 * time.Millisecond
	}
	for _, d := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 10 * time.Second} {
		all = append(all, workload{
			name: "wait" + d.String(), about: fmt.Sprintf("%g s of waiting, bound by nothing", d.Seconds()), wait: d,
			rate: atOnce / d.Seconds(), patience: 3 * d, length: 8*time.Second + 5*d,
		})
	}
	return all
}

// overloadGroups are the cells of that experiment.
func overloadGroups() (all []group) {
	guards := ways()[:len(ways())-1] // all but none
	for _, w := range overloadWork() {
		if w.unbound() {
			all = append(all, group{work: w, kind: untold, loads: []float64{0.03, 0.12}, ways: guards})
			continue
		}
		for _, kind := range []string{untold, told} {
			all = append(all, group{work: w, kind: kind, loads: []float64{0.7, 2, 4}, ways: guards})
		}
		all = append(all, group{work: w, kind: stay, loads: []float64{2, 4}, ways: guards[:1]})
	}
	return all
}

// workNamed finds the work of a server that is started.
func workNamed(name string) (workload, error) {
	all := append(overloadWork(), containerWork()...)
	all = append(all, idle)
	if i := slices.IndexFunc(all, func(w workload) bool { return w.name == name }); i >= 0 {
		return all[i], nil
	}
	return workload{}, fmt.Errorf("there is no workload %q", name)
}

// atOnce replaces the capacity of an unbound workload: this many calls in flight, slightly fewer than the 1024 that a warden
// queues by default.
const atOnce = 1000

// unbound reports whether the server can run any number of calls at a time.
func (w *workload) unbound() bool {
	return w.service == nil && !w.computes() && w.connections == 0 && w.kill == 0
}

// computes reports whether the processor is the bottleneck, and all of it the server's.
func (w *workload) computes() bool { return (w.cpu > 0 || w.app) && w.busy == 0 }

// loadName formats a load for readers.
func (w *workload) loadName(load float64) string {
	if w.unbound() {
		return fmt.Sprintf("%.0f/s", load*w.rate)
	}
	return fmt.Sprintf("%g×", load)
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
	spins  float64 // rounds per millisecond
	warden *warden.Warden
	free   chan struct{}
	app    *application
	sink   atomic.Uint64 // prevents the compiler from removing the computation
}

func newWorker(w workload, kind string, spins float64) (k *worker, err error) {
	g := group{work: w, kind: kind}
	w.patience = g.patience()
	k = &worker{workload: w, spins: spins}
	if w.connections > 0 {
		k.free = make(chan struct{}, w.connections)
	}
	if w.app {
		k.app, err = newApplication()
	}
	return k, err
}

func (k *worker) close() {
	if k.app != nil {
		k.app.close()
	}
}

// do is the work of one request. ctx ends the wait for a connection, a query, and the wait of a request that holds memory; other work is
// finished even if the client has left.
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
	if k.holdMB > 0 {
		return []byte("done"), k.hold(ctx)
	}
	time.Sleep(k.wait)
	k.compute(cpu - cpu/2)
	return []byte("done"), nil
}

const mb, page = 1 << 20, 4096

// hold waits with memory.
func (k *worker) hold(ctx context.Context) error {
	var held any
	if k.tree {
		held = grow(int(k.holdMB * mb / 48))
	} else {
		held = touched(int(k.holdMB * mb))
	}
	defer runtime.KeepAlive(held)
	timer := time.NewTimer(k.wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// touched is memory that the kernel has given.
//
//go:noinline
func touched(bytes int) []byte {
	b := make([]byte, bytes)
	for i := 0; i < bytes; i += page {
		b[i] = 1
	}
	return b
}

// node has 48 bytes.
type node struct {
	left, right *node
	_           [4]uint64
}

// grow returns a tree of so many nodes, or one more, which point all over the heap.
func grow(n int) *node {
	root := &node{}
	for made, next := 1, []*node{root}; made < n; made += 2 {
		at := next[0]
		at.left, at.right = &node{}, &node{}
		next = append(next[1:], at.left, at.right)
	}
	return root
}

// compute spins, in pieces of 250 us if the workload has scheduling points.
func (k *worker) compute(d time.Duration) {
	rounds := func(d time.Duration) int { return int(k.spins * ms(d)) }
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
