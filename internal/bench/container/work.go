// SPDX-License-Identifier: Apache-2.0

//go:build linux

// The work of a request: it holds memory, makes garbage, computes, and waits.

package main

import (
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const mb = 1 << 20

// work is what a request does, in this order: make garbage, compute, fill the memory that it holds, wait, and read that memory.
type work struct {
	HoldMB  float64
	Tree    bool // it holds nodes of 48 bytes, which the collector has to follow, instead of one piece
	ChurnMB float64
	Rounds  int // of spin
	Wait    time.Duration
	CacheMB int // what the process gathers beside its requests, in CacheIn
	CacheIn time.Duration
}

// worker does the work.
type worker struct {
	work
	running atomic.Int64
	sum     atomic.Uint64

	mu    sync.Mutex
	cache [][]byte // guarded by mu
}

func (k *worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	k.running.Add(1)
	defer k.running.Add(-1)
	for made := 0.0; made < k.ChurnMB*mb; made += 4096 {
		k.sum.Add(uint64(len(garbage(4096))))
	}
	k.sum.Add(spin(k.Rounds))
	var flat []byte
	var tree *node
	if k.Tree {
		tree = grow(int(k.HoldMB * mb / 48))
	} else {
		flat = make([]byte, int(k.HoldMB*mb))
		for i := 0; i < len(flat); i += 4096 {
			flat[i] = 1
		}
	}
	timer := time.NewTimer(k.Wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		return
	}
	sum := uint64(0)
	for i := 0; i < len(flat); i += 4096 {
		sum += uint64(flat[i])
	}
	k.sum.Add(sum)
	runtime.KeepAlive(tree)
	_, _ = fmt.Fprintln(rw, "done")
}

// node has 48 bytes.
type node struct {
	left, right *node
	_           [4]uint64
}

// grow returns a tree of so many nodes, which point all over the heap.
func grow(n int) *node {
	root := &node{}
	last := []*node{root}
	for made := 1; made < n; {
		next := make([]*node, 0, 2*len(last))
		for _, at := range last {
			if made >= n {
				break
			}
			at.left, at.right = &node{}, &node{}
			next = append(next, at.left, at.right)
			made += 2
		}
		last = next
	}
	return root
}

//go:noinline
func garbage(n int) []byte { return make([]byte, n) }

// grow fills the cache, a piece of 64 kB at a time.
func (k *worker) grow() {
	const piece = 64 << 10
	pieces := k.CacheMB * mb / piece
	for range pieces {
		b := make([]byte, piece)
		for i := 0; i < piece; i += 4096 {
			b[i] = 1
		}
		k.mu.Lock()
		k.cache = append(k.cache, b)
		k.mu.Unlock()
		time.Sleep(k.CacheIn / time.Duration(pieces))
	}
}

// spin computes.
func spin(rounds int) uint64 {
	x := uint64(88172645463325252)
	for range rounds {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// calibrate returns the rounds of spin in a millisecond of an undisturbed processor: the most of many tries.
func calibrate() int {
	most := 0.0
	for range 200 {
		began := time.Now()
		spun.Store(spin(200_000))
		most = max(most, 200_000/time.Since(began).Seconds()/1000)
	}
	return int(most)
}

var spun atomic.Uint64
