// SPDX-License-Identifier: Apache-2.0

// The collector's model beside cases worked by hand, and worlds whose tasks hold memory.

package sim

import "testing"

// heavyWork is a steady world whose tasks compute nothing to speak of for a second and hold 10 MB each.
func heavyWork(rate float64, h Heap) *World {
	w := patient(1, "exact", 0.001, 4, 0, 1, 1)
	w.Kinds[0].Pool, w.Kinds[0].Holds, w.Heap, w.Cut, w.Peak, w.Length = -1, 10e6, &h, true, rate, 40
	return w
}

// By hand: 10 tasks a second of a second hold 100 MB beside 50 MB, so that with GOGC 100 a collection finds 150 MB, the heap may
// grow by as much, which takes 1.5 s; each marks 150 MB, and its start is no later than its goal.
func TestCollectorByHand(t *testing.T) {
	w := heavyWork(10, Heap{Base: 50e6, Limit: 1e9, Growth: 1, Mark: 1e-9})
	r := try(t, w, Ours, true)
	n, live := 0.0, 0.0
	for _, p := range r.points {
		if p.at.Seconds() > 5 && p.sample.Memory.Collections > 0 {
			n += float64(p.sample.Memory.Collections)
			live += float64(p.sample.Memory.Collections) * float64(p.sample.Memory.Live)
		}
	}
	near(t, "live", live/n, 150e6, 0.1)
	// The first 5 % of the room are left for marking.
	near(t, "collections", n, 35/(1.5*0.95), 0.2)
	if r.Killed > 0 {
		t.Errorf("killed at %v", r.Killed)
	}
}

// A hard limit kills where live data and its garbage exceed it, with everything that runs; without garbage to spare, a soft one
// bears what fits.
func TestKilled(t *testing.T) {
	for name, c := range map[string]struct {
		rate   float64
		heap   Heap
		killed bool
	}{
		"150 MB and as much garbage in 200 MB":           {10, Heap{Base: 50e6, Limit: 200e6, Growth: 1, Mark: 1e-9}, true},
		"the same with GOMEMLIMIT":                       {10, Heap{Base: 50e6, Limit: 200e6, Growth: 1, Mark: 1e-9, Soft: true}, false},
		"450 MB, with GOMEMLIMIT of 200 MB":              {40, Heap{Base: 50e6, Limit: 200e6, Growth: 1, Mark: 1e-9, Soft: true}, true},
		"150 MB, and a leak of 20 MB a second in 500 MB": {10, Heap{Base: 50e6, Limit: 500e6, Growth: 1, Mark: 1e-9, Leak: 20e6}, true},
		"no limit": {40, Heap{Base: 50e6, Growth: 1, Mark: 1e-9}, false},
	} {
		r := try(t, heavyWork(c.rate, c.heap), Open, false)
		if (r.Killed > 0) != c.killed || c.killed && (r.Stranded == 0 || r.Elapsed != r.Killed) {
			t.Errorf("%s: killed at %v, %d stranded, ended at %v", name, r.Killed, r.Stranded, r.Elapsed)
		}
	}
}
