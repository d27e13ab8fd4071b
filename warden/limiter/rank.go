// The rank cut-off: which priorities a given share of the recent mix reaches up to.

package limiter

import "time"

// A task that would have to wait counts one unit in the histogram of its priority. Counts are halved whenever fullMix tasks
// are in it and whenever halfLife has passed, so it holds the last thousand or two, and of the last seconds.
const (
	unit     = 1 << 10 // so that halving loses nothing that matters
	fullMix  = 2048
	halfLife = 10 * time.Second
)

// ranks is the histogram, guarded by Limiter.mu. Sums of 16 neighbors keep looking at it short.
type ranks struct {
	count  [256]uint32
	sum    [16]uint32
	total  uint32
	halved time.Duration
}

// add counts a task that would have to wait.
func (r *ranks) add(p Priority, now time.Duration) {
	if r.total == 0 {
		r.halved = now
	}
	for elapsed := now - r.halved; elapsed >= halfLife && r.total > 0; elapsed -= halfLife {
		r.halve()
		r.halved += halfLife
	}
	if r.total >= fullMix*unit {
		r.halve()
	}
	i := laneOf(p)
	r.count[i] += unit
	r.sum[i/16] += unit
	r.total += unit
}

func (r *ranks) halve() {
	r.sum, r.total = [16]uint32{}, 0
	for i := range r.count {
		r.count[i] /= 2
		r.sum[i/16] += r.count[i]
		r.total += r.count[i]
	}
}

// cut is the priority at which the share ends, counted from the lowest of the mix: whatever is lower belongs to the share
// with its whole priority; of the cut priority itself, only the fraction part does. Without a share nothing is below the
// cut. With all of it, the cut is Critical, and belongs to it whole.
func (r *ranks) cut(share float64) (p Priority, part float64) {
	left := share * float64(r.total)
	if left <= 0 {
		return lowest, 0
	}
	i := 0
	for ; i < len(r.sum)-1 && left >= float64(r.sum[i]); i++ {
		left -= float64(r.sum[i])
	}
	for i *= 16; i < len(r.count)-1 && left >= float64(r.count[i]); i++ {
		left -= float64(r.count[i])
	}
	p = Priority(i - 128)
	if r.count[i] == 0 {
		return p, 1
	}
	return p, min(left/float64(r.count[i]), 1)
}
