// SPDX-License-Identifier: Apache-2.0

package leasekafka

// Unexported functions and errors for the external tests.

// Seeks returns how often the members of g had to seek.
func (g *Group) Seeks() int64 { return g.seeks.Load() }

// Done returns the offsets that are done according to metadata, and why it cannot be read.
func Done(metadata string, floor int64) (done []int64, wrong string) {
	m, wrong := readMemo(metadata, floor)
	for _, s := range m.done {
		for o := s.first; o <= s.last; o++ {
			done = append(done, o)
		}
	}
	return done, wrong
}

// Spans returns the number of spans of the offsets that are done.
func Spans(metadata string, floor int64) int {
	m, _ := readMemo(metadata, floor)
	return len(m.done)
}

// Running returns the offsets that are running according to metadata.
func Running(metadata string, floor int64) (running []int64) {
	m, _ := readMemo(metadata, floor)
	for _, a := range m.running {
		running = append(running, a.offset)
	}
	return running
}

// Why a partition is lost: given back in a rebalance, or taken away.
var (
	ErrRevoked   = errRevoked
	ErrForgotten = errForgotten
)
