package dispatch

// This file computes pauses before retries: from failures that this dispatcher saw, or, for records it took over, from the lease.

import (
	"math/rand/v2"
	"time"
)

// random returns numbers in [0, 1). Tests replace it.
var random = rand.Float64

// jitter is the part of a pause by which it may be shortened at random.
const jitter = 0.5

// step is d(n): base doubled n-1 times, at most most. n is 1 or more.
func step(base, most time.Duration, n int) time.Duration {
	d := base
	for ; n > 1 && d < most; n-- {
		d = min(2*d, most)
	}
	return d
}

// steps is d(1) + … + d(n), or a century where that is less.
func steps(base, most time.Duration, n int) time.Duration {
	const century = 100 * 365 * 24 * time.Hour
	var sum time.Duration
	d := base
	for ; n > 0 && d < most; n-- {
		sum += d
		d = min(2*d, most)
	}
	if time.Duration(n) > century/most {
		return century
	}
	return min(sum+time.Duration(n)*most, century)
}

// pause is the wait of a record after its nth failure: d(n), shortened by the jitter.
func (cfg Config) pause(n int) time.Duration {
	return jittered(step(cfg.Backoff, cfg.MaxBackoff, n))
}

// resume is how long a record waits for retry n that somebody else has acquired at acquired. When it failed is not known. It waits out
// the schedule that its lease tells, so that take-overs do not begin the pause anew without end, and no longer than pause, so that
// clocks that differ do not keep it.
func (cfg Config) resume(acquired time.Time, n int) time.Duration {
	if n == 0 {
		return 0
	}
	return max(0, min(cfg.pause(n), time.Until(acquired.Add(steps(cfg.Backoff, cfg.MaxBackoff, n)))))
}

// errorPause is the pause after n errors in a row from the ledger, the source or the receiver of dead letters: d(n), but at most
// 5 s, so that an engine that works again is noticed soon.
func (cfg Config) errorPause(n int) time.Duration {
	const most = 5 * time.Second
	return jittered(step(min(cfg.Backoff, most), min(cfg.MaxBackoff, most), n))
}

// jittered shortens d by the random jitter.
func jittered(d time.Duration) time.Duration {
	return d - time.Duration(random()*jitter*float64(d))
}
