package leasekafka

// This file shows the tests what users have no use for.

// Seeks counts how often the members of g had a log read from another place.
func (g *Group) Seeks() int64 { return g.seeks.Load() }

// Done are the offsets that metadata says are done, and what is wrong with it.
func Done(metadata string, floor int64) (done []int64, wrong string) {
	m, wrong := readMemo(metadata, floor)
	for _, s := range m.done {
		for o := s.first; o <= s.last; o++ {
			done = append(done, o)
		}
	}
	return done, wrong
}

// Spans is how many spans those are.
func Spans(metadata string, floor int64) int {
	m, _ := readMemo(metadata, floor)
	return len(m.done)
}

// Running are the offsets that metadata says ran.
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
