// What a controller can be told, and what it assumes when it is told nothing.

package control

import (
	"fmt"
	"math"
	"runtime"
	"time"
)

// Config bounds and tunes a [Controller]. The zero value is meant for production on 2 to 128 processors; in every field 0
// means the default. What the fields mean in the law is derived in docs/control.md.
type Config struct {
	// Min and Max bound the target, 1 <= Min <= Max. Default: 1, and 65536 or whatever Initial or Processors asks for.
	Min, Max int
	// Initial is the target to begin with, Min to Max. It is also "full": calm samples bring the target back to it
	// without any request. Default: one per processor, at least 16, moved into the bounds.
	Initial int
	// Processors is how many processors the work has, 1 or more. Below it no queue for processors cuts the target: that would
	// only leave some of them idle. Default: GOMAXPROCS when New is called. Give a number to replay elsewhere.
	Processors int
	// MaxShed bounds the shed probability, above 0 and below 1, so that some always pass and show how things are.
	// Default 0.95.
	MaxShed float64
	// Lag and Runnable say how much waiting for a processor is too much: the 90th percentile of the delays while the
	// processors are fully used (twice as much while they are not), at which the target begins to fall, and the number of waiting
	// goroutines per processor, near which it does: at 8.5 with the default. Growth stops at a little less. Default 10 ms and 8.
	Lag      time.Duration
	Runnable float64
	// ValidFor is how long a decision rules before its Stale decision does. Default 1 s; at most 1 minute.
	ValidFor time.Duration
}

// complete returns cfg with its defaults, or an [*InvalidError].
func (cfg Config) complete() (Config, error) {
	if cfg.Processors == 0 {
		cfg.Processors = runtime.GOMAXPROCS(0)
	}
	if cfg.Processors < 0 || cfg.Processors > most {
		return cfg, &InvalidError{"Config.Processors", cfg.Processors, fmt.Sprintf("1 to %d, or 0 (GOMAXPROCS)", most)}
	}
	if cfg.Min == 0 {
		cfg.Min = 1
	}
	if cfg.Min < 0 || cfg.Min > most {
		return cfg, &InvalidError{"Config.Min", cfg.Min, fmt.Sprintf("1 to %d, or 0 (1)", most)}
	}
	if cfg.Max == 0 {
		cfg.Max = max(1<<16, cfg.Min, min(cfg.Initial, most), min(8*cfg.Processors, most))
	}
	if cfg.Max < cfg.Min || cfg.Max > most {
		return cfg, &InvalidError{"Config.Max", cfg.Max, fmt.Sprintf("Min (%d) to %d, or 0", cfg.Min, most)}
	}
	if cfg.Initial == 0 {
		cfg.Initial = min(max(cfg.Min, 16, min(cfg.Processors, most)), cfg.Max)
	}
	if cfg.Initial < cfg.Min || cfg.Initial > cfg.Max {
		return cfg, &InvalidError{"Config.Initial", cfg.Initial, fmt.Sprintf("Min (%d) to Max (%d), or 0", cfg.Min, cfg.Max)}
	}
	if cfg.MaxShed == 0 {
		cfg.MaxShed = 0.95
	}
	if !(cfg.MaxShed > 0 && cfg.MaxShed < 1) {
		return cfg, &InvalidError{"Config.MaxShed", cfg.MaxShed, "above 0 and below 1, or 0 (0.95)"}
	}
	if cfg.Lag == 0 {
		cfg.Lag = 10 * time.Millisecond
	}
	if cfg.Lag < 0 || cfg.Lag > time.Minute {
		return cfg, &InvalidError{"Config.Lag", cfg.Lag, "above 0, at most 1m, or 0 (10ms)"}
	}
	if cfg.Runnable == 0 {
		cfg.Runnable = 8
	}
	if !(cfg.Runnable > 0) || math.IsInf(cfg.Runnable, 0) {
		return cfg, &InvalidError{"Config.Runnable", cfg.Runnable, "above 0 and finite, or 0 (8)"}
	}
	if cfg.ValidFor == 0 {
		cfg.ValidFor = time.Second
	}
	if cfg.ValidFor < 0 || cfg.ValidFor > time.Minute {
		return cfg, &InvalidError{"Config.ValidFor", cfg.ValidFor, "above 0, at most 1m, or 0 (1s)"}
	}
	return cfg, nil
}

// within moves a target into its bounds.
func (cfg Config) within(target float64) float64 {
	return min(max(target, float64(cfg.Min)), float64(cfg.Max))
}

// most is the greatest target there is.
const most = 1 << 24
