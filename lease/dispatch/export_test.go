package dispatch

// This file shows the tests what the package keeps to itself.

import "time"

// Resume is how long a record that was acquired at acquired waits for retry n when it has been taken over.
func Resume(cfg Config, acquired time.Time, n int) time.Duration { return cfg.resume(acquired, n) }
