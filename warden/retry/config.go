// What a Caller is made of, and what it says when something is wrong.

package retry

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/stopbank/stopbank/warden/limiter"
)

// Config describes a [Caller]. The zero value is meant for production.
type Config struct {
	// Attempts is how many one call makes at most, the first one and hedges included, 1 to 10; 0: 3.
	Attempts int
	// Ratio is how many retries and hedges there may be for each first attempt of the last ten seconds, up to 1; 0: 0.1.
	Ratio float64
	// Floor is how many there may be in ten seconds however few first attempts there are, up to 1000; 0: 1, negative: none. With a Ratio of
	// 0.1 a floor of 1 decides below one first attempt a second. Each Caller has its own: a thousand processes that
	// call seldom may retry a hundred times a second together.
	Floor int
	// Backoff is the upper end of the random wait before the second attempt, up to a minute; it doubles with each further one. 0: 100 ms.
	Backoff time.Duration
	// MaxWait bounds every wait, up to an hour: a call that the server wants to wait longer ends. 0: 10 s.
	MaxWait time.Duration
	// Rand draws numbers in [0, 1) and is called by one goroutine at a time; nil: math/rand/v2.
	Rand func() float64
}

const (
	accepting   = 2.0 // K of the SRE book: so many requests for each accepted one
	mostRefused = 0.8
	fewest      = 10 // requests that it takes to refuse one: the failure of a caller that calls seldom proves nothing
)

// New returns a Caller: one for each dependency. The error, an [*InvalidError], names the field that is wrong. It starts no goroutine.
func New(cfg Config) (*Caller, error) {
	for _, f := range []struct {
		field   string
		wrong   bool
		value   any
		allowed string
	}{
		{"Attempts", cfg.Attempts < 0 || cfg.Attempts > 10, cfg.Attempts, "0 (3) to 10"},
		{"Ratio", !(cfg.Ratio >= 0 && cfg.Ratio <= 1), cfg.Ratio, "0 (0.1) to 1"},
		{"Floor", cfg.Floor > 1000, cfg.Floor, "negative (none), 0 (1) to 1000"},
		{"Backoff", cfg.Backoff < 0 || cfg.Backoff > time.Minute, cfg.Backoff, "0 (100ms) to 1m"},
		{"MaxWait", cfg.MaxWait < 0 || cfg.MaxWait > time.Hour, cfg.MaxWait, "0 (10s) to 1h"},
	} {
		if f.wrong {
			return nil, &InvalidError{"retry.Config." + f.field, f.value, f.allowed}
		}
	}
	cfg.Attempts = or(cfg.Attempts, 3)
	cfg.Ratio = or(cfg.Ratio, 0.1)
	cfg.Floor = max(0, or(cfg.Floor, 1))
	cfg.Backoff = or(cfg.Backoff, 100*time.Millisecond)
	cfg.MaxWait = or(cfg.MaxWait, 10*time.Second)
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	return &Caller{cfg: cfg, epoch: time.Now(), accepted: map[limiter.Priority]*window{}}, nil
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

var (
	// ErrThrottled is what every *ThrottledError is.
	ErrThrottled = errors.New("retry: throttled")
	// ErrInvalid is what every *InvalidError is.
	ErrInvalid = errors.New("retry: invalid argument")
)

// ThrottledError says that a call was refused here and nothing was sent, because the dependency accepts too few. It is what the decision
// was made of.
type ThrottledError struct {
	// Priority is that of the call: each has sums of its own.
	Priority limiter.Priority
	// Requests were made in the last second, or in as much of the last ten as it took to see ten, those that were refused here included,
	// and Accepted of them were not refused.
	Requests, Accepted int64
	// Probability is how likely the call was to be refused, up to 0.8.
	Probability float64
}

// Error has all of it on one line. It allocates.
func (e *ThrottledError) Error() string {
	return fmt.Sprintf("retry: throttled: of the last %d requests of priority %s, %d were accepted; %.0f %% are not sent",
		e.Requests, e.Priority, e.Accepted, 100*e.Probability)
}

// Is reports whether target is ErrThrottled.
func (e *ThrottledError) Is(target error) bool { return target == ErrThrottled }

// InvalidError says which field or argument was wrong, what it was, and what is allowed.
type InvalidError struct {
	Field   string
	Value   any
	Allowed string
}

// Error names field, value and what is allowed.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("retry: %s is %v; allowed: %s", e.Field, e.Value, e.Allowed)
}

// Is reports whether target is ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }
