// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file computes pauses before retries: from the failures that this dispatcher saw, or from the lease of a record taken over.

import (
	"math/rand/v2"
	"time"
)

// random returns numbers in [0, 1). Tests replace it.
var random = rand.Float64 //nolint:gochecknoglobals // one source of random numbers serves all

// jitter is the part of a pause by which it may be shortened at random.
const jitter = 0.5

// doubled returns d(n): base doubled n-1 times, at most most. n is 1 or more.
func doubled(base, most time.Duration, n int) time.Duration {
	d := base
	for ; n > 1 && d < most; n-- {
		d = min(2*d, most)
	}
	return d
}

// steps returns d(1) + … + d(n), or a century if that is less.
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

// pause returns the wait of a record after its nth failure: d(n), shortened by the jitter.
func (cfg Config) pause(n int, random float64) time.Duration {
	return jittered(random, doubled(cfg.Backoff, cfg.MaxBackoff, n))
}

// resume returns the wait for retry n of a record that was taken over, and whose lease another process acquired at acquired. The
// time of the failure is not known. So the record waits until the end of the schedule that begins at acquired: take-overs that
// follow each other do not restart the pause. It waits no longer than pause(n), whatever the clocks say.
func (cfg Config) resume(now moment, acquired time.Time, n int) time.Duration {
	if n == 0 {
		return 0
	}
	return max(0, min(cfg.pause(n, now.random), acquired.Add(steps(cfg.Backoff, cfg.MaxBackoff, n)).Sub(now.now)))
}

// errorPause returns the pause after n errors in a row of the ledger, the source or DeadLetter: d(n), but at most 5 s, so that a
// recovery is noticed soon.
func (cfg Config) errorPause(n int, random float64) time.Duration {
	const most = 5 * time.Second
	return jittered(random, doubled(min(cfg.Backoff, most), min(cfg.MaxBackoff, most), n))
}

// jittered shortens d by the random jitter.
func jittered(random float64, d time.Duration) time.Duration {
	return d - time.Duration(random*jitter*float64(d))
}
