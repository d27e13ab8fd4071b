// SPDX-License-Identifier: Apache-2.0

// The heap of a process under Go's collector: what tasks hold, when a collection starts, what it costs, and when the process is
// killed.

package sim

import (
	"math"
	"time"

	"github.com/stopbank/stopbank/warden/monitor"
)

// Heap is the memory of a server. Sizes are in bytes.
type Heap struct {
	Base float64 // held beside tasks
	// Cache is what a cache grows by until it is full, Filling how many seconds that takes. Leak grows without end, a second.
	Cache, Filling, Leak float64
	Limit                float64 // 0: none
	Soft                 bool    // Limit is GOMEMLIMIT; the process is killed at twice that. Otherwise it is killed at Limit.
	Growth               float64 // GOGC / 100; 0: off
	Mark                 float64 // seconds of a processor to mark a byte
}

// leastGoal is the heap below which Go does not collect.
const leastGoal = 4 << 20

// heap is the heap of a running server. Everything that a task holds it allocates at its start.
type heap struct {
	Heap
	s           *server
	held, size  float64 // bytes of running tasks, and of these and all else, garbage included
	live, goal  float64
	runway      float64 // bytes that were allocated during the last marking
	at          float64 // seconds for which the cache has grown
	marking     bool
	left        float64 // seconds of marking still to do
	began       float64 // size at which marking began
	workers     int
	collections uint64
	allocated   float64 // bytes, as collections since the last sample
	collecting  float64 // seconds of marking since filled
	full        float64 // of the bucket that bounds the collector to half of the processors
	filled      time.Duration
}

func newHeap(s *server, of *Heap) *heap {
	h := &heap{Heap: *of, s: s, live: of.Base, size: of.Base}
	h.aim()
	return h
}

// aim sets the size at which the next collection is to end.
func (h *heap) aim() {
	h.goal = math.Inf(1)
	if h.Growth > 0 {
		h.goal = h.live * (1 + h.Growth)
	}
	if h.Soft && h.Limit > 0 {
		h.goal = min(h.goal, h.Limit)
	}
	h.goal = max(h.goal, leastGoal)
}

// reachable is what a collection that ends now finds.
func (h *heap) reachable() float64 {
	grown := 0.0
	if h.Filling > 0 {
		grown = h.Cache * min(1, h.at/h.Filling)
	}
	return h.Base + grown + h.Leak*h.at + h.held
}

// allocate adds bytes to the heap and returns the marking that the allocating task must do itself: as much of the rest as its
// share of the room that is left.
func (h *heap) allocate(bytes float64) (assist time.Duration) {
	if bytes <= 0 {
		return 0
	}
	if h.marking && !h.bounded() {
		mine := h.left * min(1, bytes/max(h.goal-h.size, bytes))
		h.left -= mine
		h.collecting += mine
		assist = seconds(mine)
	}
	h.size += bytes
	h.allocated += bytes
	h.s.e.result.Heaviest = max(h.s.e.result.Heaviest, h.reachable())
	if kill := h.Limit * float64(1+one(h.Soft)); kill > 0 && h.size > kill {
		h.s.e.result.Killed = h.s.e.now
		return assist
	}
	trigger := max(h.live+0.7*(h.goal-h.live), min(h.goal-h.runway, h.live+0.95*(h.goal-h.live)))
	if !h.marking && h.size >= trigger {
		h.begin()
	}
	return assist
}

// bounded reports whether the collector has had half of the processors for so long that tasks no longer help.
func (h *heap) bounded() bool {
	now, cores := h.s.e.now, float64(h.s.cores)
	work := (now-h.filled).Seconds()*cores - h.collecting
	h.full = min(max(h.full+h.collecting-work, 0), cores)
	h.filled, h.collecting = now, 0
	return h.full >= cores
}

// begin starts marking, with a quarter of the processors.
func (h *heap) begin() {
	h.marking, h.left, h.began = true, h.reachable()*h.Mark, h.size
	h.workers = max(1, h.s.allowed/4)
	for range h.workers {
		h.work(&attempt{on: h.s, stage: marking})
	}
}

// work lets a worker mark for a slice.
func (h *heap) work(a *attempt) {
	step := min(h.left, slice.Seconds())
	h.left -= step
	h.collecting += step
	h.s.compute(a, max(seconds(step), 1))
}

// marked continues after a worker's slice: with the next one at once if a processor is idle, or when the worker's quarter of the
// processors allows it.
func (h *heap) marked(a *attempt) {
	if h.left > 1e-9 {
		part := min(1, 0.25*float64(h.s.allowed)/float64(h.workers))
		pause := time.Duration(float64(slice) * (1/part - 1))
		if len(h.s.ready) == 0 {
			pause = 0
		}
		h.s.e.after(pause, func(_ *engine, a *attempt) { h.work(a) }, a)
		return
	}
	if h.workers--; h.workers > 0 {
		return
	}
	h.runway = h.size - h.began
	h.marking, h.live = false, h.reachable()
	h.size = h.live
	h.collections++
	h.aim()
}

// start allocates what a task holds.
func (h *heap) start(a *attempt) time.Duration {
	h.held += a.holds
	return h.allocate(a.holds)
}

// end makes garbage of it.
func (h *heap) end(a *attempt) { h.held = max(h.held-a.holds, 0) }

func (h *heap) tick() {
	before := h.reachable()
	h.at = h.s.e.now.Seconds()
	h.allocate(h.reachable() - before)
}

func (h *heap) sample() (out monitor.Memory) {
	out = monitor.Memory{Limit: uint64(h.Limit), Soft: h.Soft && h.Limit > 0, Live: uint64(h.live), Growth: h.Growth,
		Collections: h.collections, Allocated: uint64(h.allocated)}
	h.collections, h.allocated = 0, 0
	return out
}
