// Sliding sums over the last ten seconds, in slices.

package retry

import "time"

const (
	slice  = 200 * time.Millisecond
	slices = 50 // ten seconds
	recent = 5  // one second
)

// window counts requests and a part of them: first attempts and retries for the budget, requests and accepted ones for the
// throttle. It keeps one slice more than ten seconds: the current slice is incomplete, so all slices together cover at least
// ten seconds, and all but the oldest at most ten.
type window struct {
	last int64 // number of the current slice
	ring [slices + 1]sums
	all  sums // of ring
}

type sums struct{ whole, part int64 }

// at moves the window to now.
func (w *window) at(now time.Duration) {
	n := int64(now / slice)
	if n-w.last > slices {
		*w = window{last: n}
	}
	for w.last < n {
		w.last++
		old := w.slot(w.last) // of the oldest slice
		w.all.whole -= old.whole
		w.all.part -= old.part
		*old = sums{}
	}
}

func (w *window) slot(n int64) *sums { return &w.ring[n%(slices+1)] }

func (w *window) add(whole, part int64) {
	s := w.slot(w.last)
	s.whole += whole
	s.part += part
	w.all.whole += whole
	w.all.part += part
}

// within returns the whole of at most the last ten seconds: without the oldest slice.
func (w *window) within() int64 { return w.all.whole - w.slot(w.last+1).whole }

// lately returns the sums of the last second, or of as much of the window as it takes to see enough.
func (w *window) lately(enough int64) (s sums) {
	for i := range int64(slices + 1) {
		if i > recent && s.whole >= enough {
			break
		}
		of := w.slot(w.last - i + slices + 1)
		s.whole += of.whole
		s.part += of.part
	}
	return s
}
