package dispatch

// This file says when to try again: a function of the lease and of nothing that a crash could take away.

import "time"

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

// due is when retry n may begin: n steps after acquired, but from d(1) to d(n) after failed; u in [0, 1) is the chance that the
// jitter makes something of.
func (cfg Config) due(acquired, failed time.Time, n int, u float64) time.Time {
	share := u * cfg.Jitter
	last := step(cfg.Backoff, cfg.MaxBackoff, n)
	at := acquired.Add(steps(cfg.Backoff, cfg.MaxBackoff, n) - part(last, share))
	if soonest := failed.Add(cfg.Backoff - part(cfg.Backoff, share)); at.Before(soonest) {
		return soonest
	}
	if latest := failed.Add(last - part(last, share)); at.After(latest) {
		return latest
	}
	return at
}

func part(d time.Duration, share float64) time.Duration { return time.Duration(share * float64(d)) }

// trouble is the pause after the nth refusal in a row by the ledger, the source or the receiver of dead letters: d(n), but 5 s at
// most, so that an engine that is back is noticed.
func (cfg Config) trouble(n int) time.Duration {
	const most = 5 * time.Second
	d := step(min(cfg.Backoff, most), min(cfg.MaxBackoff, most), n)
	return d - part(d, cfg.Rand()*cfg.Jitter)
}
