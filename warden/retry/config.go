// SPDX-License-Identifier: Apache-2.0

// The configuration of a Caller, and its errors.

package retry

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// Config describes a [Caller]. Each field may be zero.
type Config struct {
	// Attempts is the maximum number of attempts per call, the first one and hedges included, 1 to 10; 0: 3.
	Attempts int
	// Ratio is the maximum number of retries and hedges per first attempt of the last ten seconds to the same dependency, above
	// 0 to 1; 0: 0.1. More where single failures are frequent and the server has room.
	Ratio float64
	// MinRetries is the number of retries and hedges allowed in ten seconds at any rate of first attempts to a dependency, up to
	// 1000; 0: 1, negative: none. With a Ratio of 0.1, a MinRetries of 1 matters below one first attempt a second. Each Caller
	// has its own minimum: a thousand processes with rare calls may together retry a hundred times a second.
	MinRetries int
	// Backoff is the upper bound of the random wait before the second attempt, up to a minute; it doubles with each further
	// attempt. No wait is longer than 10 s. 0: 100 ms.
	Backoff time.Duration
	// Rand returns numbers from 0 to below 1 and is not called concurrently; nil: math/rand/v2.
	Rand func() float64
}

const (
	accepting   = 2.0 // K of the SRE book: requests sent per accepted request
	maxThrottle = 0.8
	fewest      = 10 // requests needed before one is rejected: a few failures prove nothing
	longestWait = 10 * time.Second
)

// New returns a Caller: one is enough for all dependencies of a client. The error, an [*decision.InvalidError], names the
// invalid field. New starts no goroutine.
func New(cfg Config) (*Caller, error) {
	for _, f := range []struct {
		field   string
		wrong   bool
		value   any
		allowed string
	}{
		{"Attempts", cfg.Attempts < 0 || cfg.Attempts > 10, cfg.Attempts, "1 to 10, or 0 (the default, 3)"},
		{"Ratio", !(cfg.Ratio >= 0 && cfg.Ratio <= 1), cfg.Ratio, "above 0 to 1, or 0 (the default, 0.1)"},
		{"MinRetries", cfg.MinRetries > 1000, cfg.MinRetries, "1 to 1000, 0 (the default, 1), or a negative number for none"},
		{"Backoff", cfg.Backoff < 0 || cfg.Backoff > time.Minute, cfg.Backoff, "above 0 to 1m, or 0 (the default, 100ms)"},
	} {
		if f.wrong {
			return nil, invalidField("Config."+f.field, f.value, f.allowed)
		}
	}
	cfg.Attempts = cmp.Or(cfg.Attempts, 3)
	cfg.Ratio = cmp.Or(cfg.Ratio, 0.1)
	cfg.MinRetries = max(0, cmp.Or(cfg.MinRetries, 1))
	cfg.Backoff = cmp.Or(cfg.Backoff, 100*time.Millisecond)
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	return &Caller{cfg: cfg, epoch: time.Now(), seed: maphash.MakeSeed(), windows: map[key]*window{}}, nil
}

var (
	// ErrThrottled matches, with errors.Is, the error of a call that a Caller rejected, because the dependency accepts too few;
	// nothing was sent. Its text has the dependency, the priority and the numbers of the decision.
	ErrThrottled = errors.New("retry: throttled")
)

// throttledError rejects a call. It has the numbers of the decision.
type throttledError struct {
	dependency  string
	priority    decision.Priority
	counts      sums    // of the last second, or of as much of the last ten as it took to see ten requests
	probability float64 // with which the call was rejected
}

// Error has all fields on one line. It allocates.
func (e *throttledError) Error() string {
	to := ""
	if e.dependency != "" {
		to = " to " + strconv.Quote(e.dependency)
	}
	return fmt.Sprintf("retry: throttled: of the last %d requests of priority %s%s, %d were accepted; %.0f %% are not sent",
		e.counts.whole, e.priority, to, e.counts.part, 100*e.probability)
}

// Is reports whether target is ErrThrottled.
func (e *throttledError) Is(target error) bool { return target == ErrThrottled }

// invalidField rejects a field of a Config, or an argument: the field as in Config.Limit.
func invalidField(field string, value any, allowed string) *decision.InvalidError {
	return &decision.InvalidError{Field: "retry." + field, Value: value, Allowed: allowed}
}
