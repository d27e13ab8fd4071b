package dispatch

// This file shows the tests what the package keeps to itself.

import "time"

// Due is when retry n may begin.
func Due(cfg Config, acquired, failed time.Time, n int, u float64) time.Time {
	return cfg.due(acquired, failed, n, u)
}
