// SPDX-License-Identifier: Apache-2.0

// The configuration of a controller, and its defaults.

package control

import (
	"fmt"
	"runtime"
	"time"
)

// Config bounds and tunes a [Controller]. In every field 0 means the default. The package comment derives the meaning of each
// field.
type Config struct {
	// Min and Max bound the concurrency limit, in tasks, 1 <= Min <= Max <= 16,777,216. Default: 1, and 65536 or more if Min,
	// Initial or Processors requires it.
	Min, Max int
	// Initial is the first concurrency limit, Min to Max. Calm samples without requests bring the limit back up to it.
	// Default: one per processor, at least 16, clamped to Min and Max.
	Initial int
	// Processors is the number of processors available to the work, 1 to 16,777,216. A queue for processors never cuts the
	// limit below it, because that would only leave processors idle. Default: what each sample says, GOMAXPROCS at the call of
	// New until one does.
	Processors int
	// Lag is how long work may wait for a processor: the 90th percentile of the scheduling delay at which the limit starts to
	// fall while the processors are fully used (twice as much while they are not), above 0 to 1 minute. Growth stops slightly
	// below. Where other processes take processors, it counts in the processor time that this one gets. Less makes answers
	// of computations faster, and costs handlers that compute and wait in turn throughput. Default 10 ms.
	Lag time.Duration
	// ValidFor is how long a decision is valid before its Stale decision replaces it. Default 1 s; at most 1 minute.
	ValidFor time.Duration
}

// complete returns cfg with its defaults, or an [*decision.InvalidError].
func (cfg Config) complete() (Config, error) {
	if cfg.Processors == 0 {
		cfg.Processors = runtime.GOMAXPROCS(0)
	}
	if cfg.Processors < 0 || cfg.Processors > most {
		return cfg, invalidField(
			"Config.Processors", cfg.Processors, fmt.Sprintf("1 to %d, or 0 (GOMAXPROCS, the default)", most),
		)
	}
	if cfg.Min == 0 {
		cfg.Min = 1
	}
	if cfg.Min < 0 || cfg.Min > most {
		return cfg, invalidField("Config.Min", cfg.Min, fmt.Sprintf("1 to %d, or 0 (the default, 1)", most))
	}
	if cfg.Max == 0 {
		cfg.Max = max(1<<16, cfg.Min, min(cfg.Initial, most), min(8*cfg.Processors, most))
	}
	if cfg.Max < cfg.Min || cfg.Max > most {
		return cfg, invalidField("Config.Max", cfg.Max, fmt.Sprintf("Min (%d) to %d, or 0 (the default)", cfg.Min, most))
	}
	if cfg.Initial == 0 {
		cfg.Initial = min(max(cfg.Min, 16, min(cfg.Processors, most)), cfg.Max)
	}
	if cfg.Initial < cfg.Min || cfg.Initial > cfg.Max {
		return cfg, invalidField(
			"Config.Initial", cfg.Initial, fmt.Sprintf("Min (%d) to Max (%d), or 0 (the default)", cfg.Min, cfg.Max),
		)
	}
	if cfg.Lag == 0 {
		cfg.Lag = 10 * time.Millisecond
	}
	if cfg.Lag < 0 || cfg.Lag > time.Minute {
		return cfg, invalidField("Config.Lag", cfg.Lag, "above 0 to 1m, or 0 (the default, 10ms)")
	}
	if cfg.ValidFor == 0 {
		cfg.ValidFor = time.Second
	}
	if cfg.ValidFor < 0 || cfg.ValidFor > time.Minute {
		return cfg, invalidField("Config.ValidFor", cfg.ValidFor, "above 0 to 1m, or 0 (the default, 1s)")
	}
	return cfg, nil
}

// within clamps a limit to Min and Max.
func (cfg Config) within(target float64) float64 {
	return min(max(target, float64(cfg.Min)), float64(cfg.Max))
}

// most is the largest limit.
const most = 1 << 24
