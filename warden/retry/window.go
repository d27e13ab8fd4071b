// SPDX-License-Identifier: Apache-2.0

// Sliding sums over the last ten seconds, in slices.

package retry

import "time"

const (
	slice  = 200 * time.Millisecond
	slices = 50 // ten seconds
	second = 5
)

// window counts requests and a part of them: first attempts and retries for the budget, requests and accepted ones for the
// throttle. It keeps one slice more than ten seconds: the current slice is incomplete, so all slices together cover at least
// ten seconds, and all but the oldest at most ten.
type window struct {
	last  int64 // number of the current slice
	ring  [slices + 1]sums
	all   sums // of ring
	paths paths
}

// sums counts failures separately from whole: they count only while most paths fail.
type sums struct{ whole, part, failed int64 }

func (s sums) plus(o sums) sums {
	return sums{s.whole + o.whole, s.part + o.part, s.failed + o.failed}
}

// at moves the window to now.
func (w *window) at(now time.Duration) {
	n := int64(now / slice)
	if n-w.last > slices {
		*w = window{last: n, paths: w.paths}
	}
	for w.last < n {
		w.last++
		old := w.slot(w.last) // of the oldest slice
		w.all = w.all.plus(sums{-old.whole, -old.part, -old.failed})
		*old = sums{}
	}
}

func (w *window) slot(n int64) *sums { return &w.ring[n%(slices+1)] }

func (w *window) add(s sums) {
	now := w.slot(w.last)
	*now, w.all = now.plus(s), w.all.plus(s)
}

// within returns the whole of at most the last ten seconds: without the oldest slice.
func (w *window) within() int64 { return w.all.whole - w.slot(w.last+1).whole }

// recent returns the sums of the last second, or of as much of the window as it takes to see enough requests. While most paths
// fail, its whole includes failed.
func (w *window) recent(enough int64) (s sums) {
	mostFail := w.mostFail()
	for i := range int64(slices + 1) {
		if i > second && s.whole >= enough {
			break
		}
		of := *w.slot(w.last - i + slices + 1)
		if mostFail {
			of.whole += of.failed
		}
		s = s.plus(of)
	}
	return s
}

// throttled counts a call that was not sent: as a failure if failures may be the reason, so that it is forgiven with them.
func (w *window) throttled() {
	if w.mostFail() {
		w.add(sums{failed: 1})
		return
	}
	w.add(sums{whole: 1})
}

func (w *window) mostFail() bool { return w.all.failed > 0 && w.paths.mostFail(w.last) }
