// SPDX-License-Identifier: Apache-2.0

// The backlog: a ring in order of arrival that finds duplicates in constant expected time.

package step

import "math/rand/v2"

// scanMax is the ring size up to which a scan finds a duplicate sooner than an index would. Also the least size to index.
const scanMax = 16

// queue holds distinct offsets in order of arrival. A nil queue is empty. The ring's size is a power of two; above
// scanMax slots, index finds an offset's slot by linear probing over twice as many places, so that at least half of
// them are free and a probe ends soon.
type queue struct {
	buf   []int64
	index []uint32 // slot+1 of the offset that hashes here, 0: free; nil while the ring is small
	seed  uint64   // of the hash, drawn anew for each index
	head  int
	n     int
}

func (q *queue) len() int {
	if q == nil {
		return 0
	}
	return q.n
}

// first is the oldest offset.
func (q *queue) first() (int64, bool) {
	if q.len() == 0 {
		return 0, false
	}
	return q.buf[q.head], true
}

func (q *queue) has(offset int64) bool {
	if q.len() == 0 {
		return false
	}
	if q.index == nil {
		for i := range q.n {
			if q.buf[(q.head+i)&(len(q.buf)-1)] == offset {
				return true
			}
		}
		return false
	}
	return q.index[q.probe(offset)] != 0
}

// push appends an offset that the queue does not hold.
func (q *queue) push(offset int64) {
	if q.n == len(q.buf) {
		q.resize(max(4, 2*len(q.buf)))
	}
	slot := (q.head + q.n) & (len(q.buf) - 1)
	q.buf[slot] = offset
	q.n++
	if q.index != nil {
		q.index[q.probe(offset)] = uint32(slot) + 1
	}
}

// pop removes the oldest offset, and halves a ring that is three quarters empty.
func (q *queue) pop() {
	if q.index != nil {
		q.unindex(q.buf[q.head])
	}
	q.head = (q.head + 1) & (len(q.buf) - 1)
	q.n--
	if len(q.buf) > scanMax && q.n <= len(q.buf)/4 {
		q.resize(len(q.buf) / 2)
	}
}

// appendTo appends the offsets in order to dst.
func (q *queue) appendTo(dst []int64) []int64 {
	for i := range q.len() {
		dst = append(dst, q.buf[(q.head+i)&(len(q.buf)-1)])
	}
	return dst
}

func (q *queue) resize(size int) {
	q.buf = q.appendTo(make([]int64, 0, size))[:size]
	q.head, q.index = 0, nil
	if size <= scanMax {
		return
	}
	q.index, q.seed = make([]uint32, 2*size), rand.Uint64()
	for slot, offset := range q.buf[:q.n] {
		q.index[q.probe(offset)] = uint32(slot) + 1
	}
}

// home is where the probe for offset starts. A multiplication alone would map the multiples of an unlucky stride to
// one run of places; the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
// 2014) lets every bit of the offset change every bit of the place, and the seed leaves nobody a stride to choose.
func (q *queue) home(offset int64) int {
	x := uint64(offset) ^ q.seed
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return int((x ^ x>>31) & uint64(len(q.index)-1))
}

// probe returns where offset is indexed, or else the free entry where it would be.
func (q *queue) probe(offset int64) int {
	i := q.home(offset)
	for q.index[i] != 0 && q.buf[q.index[i]-1] != offset {
		i = (i + 1) & (len(q.index) - 1)
	}
	return i
}

// unindex frees offset's place and moves up every later entry of the run whose probe passed through it, so that no
// probe stops short at the hole.
func (q *queue) unindex(offset int64) {
	mask := len(q.index) - 1
	hole := q.probe(offset)
	for i := (hole + 1) & mask; q.index[i] != 0; i = (i + 1) & mask {
		home := q.home(q.buf[q.index[i]-1])
		if (i-home)&mask >= (i-hole)&mask {
			q.index[hole] = q.index[i]
			hole = i
		}
	}
	q.index[hole] = 0
}
