//go:build linux

// The workloads: what a request costs the server, and how many it could do.

package main

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// A workload is what a handler does for one request.
type workload struct {
	name, about string
	cpu         time.Duration // of processor time
	points      bool          // scheduling points while computing
	wait        time.Duration // for something that is not a processor
	connections int           // that the waiting needs one of; 0: any number
	right       int           // the number that a static bound is told: more only queue, fewer leave something idle
}

// workloads are all of them, in the order of the report.
func workloads() []workload {
	const computing = "ms of computing in one piece, no scheduling point"
	const yielding = "ms of computing with a scheduling point every 250 us"
	return []workload{
		{name: "cpu1", about: "1 " + computing, cpu: 1 * time.Millisecond, right: 2},
		{name: "cpu4", about: "4 " + computing, cpu: 4 * time.Millisecond, right: 2},
		{name: "cpu16", about: "16 " + computing, cpu: 16 * time.Millisecond, right: 2},
		{name: "cpu1y", about: "1 " + yielding, cpu: 1 * time.Millisecond, points: true, right: 2},
		{name: "cpu4y", about: "4 " + yielding, cpu: 4 * time.Millisecond, points: true, right: 2},
		{name: "cpu16y", about: "16 " + yielding, cpu: 16 * time.Millisecond, points: true, right: 2},
		{name: "mixed", about: "2 ms of computing, 20 ms of waiting, 2 ms of computing", cpu: 4 * time.Millisecond, wait: 20 * time.Millisecond, right: 8},
		{name: "downstream", about: "40 ms on one of 10 connections, no computing", wait: 40 * time.Millisecond, connections: 10, right: 12},
	}
}

// A worker does the work of one workload in one process.
type worker struct {
	workload
	rounds int // of spin for the computing
	free   chan struct{}
	sink   atomic.Uint64 // so that nothing is computed in vain
}

func newWorker(w workload, roundsPerMs float64) *worker {
	k := &worker{workload: w, rounds: int(roundsPerMs * float64(w.cpu) / float64(time.Millisecond))}
	if w.connections > 0 {
		k.free = make(chan struct{}, w.connections)
	}
	return k
}

// do is the work of one request. Like a call to a database, waiting for a connection ends with ctx; what has begun is
// finished, whoever still wants it.
func (k *worker) do(ctx context.Context) error {
	if k.free != nil {
		select {
		case k.free <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		defer func() { <-k.free }()
	}
	k.compute(k.rounds / 2)
	if k.wait > 0 {
		time.Sleep(k.wait)
	}
	k.compute(k.rounds - k.rounds/2)
	return nil
}

// compute spins, in pieces of 250 us if the workload has scheduling points.
func (k *worker) compute(rounds int) {
	if !k.points {
		k.sink.Add(spin(rounds))
		return
	}
	piece := max(1, int(float64(k.rounds)*float64(250*time.Microsecond)/float64(k.cpu)))
	for ; rounds > 0; rounds -= piece {
		k.sink.Add(spin(min(piece, rounds)))
		runtime.Gosched()
	}
}

// spin is work that fits a register, so that neither caches nor memory have a say in how long it takes.
func spin(rounds int) uint64 {
	x := uint64(rounds) | 1
	for range rounds {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// calibrate is how many rounds of spin take a millisecond here: the quickest of some tries, because whatever disturbs
// makes it slower.
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
	return rounds / (float64(best) / float64(time.Millisecond))
}
