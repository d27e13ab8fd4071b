// What a console shows, to how many, and how often.

package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/limiter"
)

// Config says what a console shows. At least one of Warden, Set, Limiters and DeadLetters must be there.
type Config struct {
	// Title stands at the top of the page, for instance the name of the service; "": "Stopbank".
	Title string
	// Instance is the name of this process, such as its pod's, beside the title; "": none. Give the same to wardenhttp.Config.Instance and, as
	// an attribute, to the logger.
	Instance string
	// Warden, if not nil, is shown with its history.
	Warden *warden.Warden
	// Set, if not nil, is shown compartment by compartment.
	Set *bulkhead.Set
	// Limiters are further limiters to show, each under a name of its own. That of Warden is shown anyway.
	Limiters []Limiter
	// DeadLetters, if not nil, is asked for the records that dispatchers gave up, every few seconds while somebody watches, by one
	// goroutine at a time. It should return when ctx ends, after 5 s. An error is shown.
	DeadLetters func(ctx context.Context) (DeadLetters, error)
	// Hosts are the names, without ports, by which browsers may ask for the console, besides IP addresses and localhost; "*": any. Without
	// this, a page could give itself the console's address (DNS rebinding) and read it. Behind a proxy that
	// keeps the Host header, the proxy's name belongs here.
	Hosts []string
	// Interval is the time between two looks while somebody watches, 100 ms to 10 s; 0: 1 s.
	Interval time.Duration
	// MaxStreams bounds how many may watch at once, 1 to 1000; 0: 16. Who comes later is refused with status 503, and the
	// page then asks for the state from time to time instead. As many may be sent state.json or refusals.json at once.
	MaxStreams int
	// MaxRejections bounds how many of the last refusals are shown, 1 to 1000; 0: 50. There are no more than the limiters
	// remember.
	MaxRejections int
	// WriteTimeout is how long a reader may take to read what was written for it before it is cut off, 10 ms to 1 m;
	// 0: 10 s. It takes the place of http.Server.WriteTimeout.
	WriteTimeout time.Duration
}

// Limiter is a limiter and the name to show it by.
type Limiter struct {
	Name    string
	Limiter *limiter.Limiter
}

// Console is an [http.Handler] that serves the page, its files and the state as JSON, at whatever prefix it is mounted
// under with [http.StripPrefix]. Its methods may be called by any number of goroutines. It must come from [New].
type Console struct {
	cfg  Config
	done chan struct{} // closed by Close

	desk   desk
	asking chan struct{} // holds one element while the controller is asked for levels
	mute   atomic.Bool   // it did not answer the last time

	mu      sync.Mutex // guards all below; what is called under it takes locks of the layers, and runs nothing foreign
	streams int
	asked   int // of state.json, being answered
	closed  bool
	past    past
}

// ErrInvalid is what every [*InvalidError] is.
var ErrInvalid = errors.New("console: invalid argument")

// InvalidError says which field was wrong, what it was, and what is allowed.
type InvalidError struct {
	Field   string
	Value   any
	Allowed string
}

// Error names field, value and what is allowed.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("console: %s is %v; allowed: %s", e.Field, e.Value, e.Allowed)
}

// Is reports whether target is ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// New returns a console. It starts nothing and registers nothing. The error is an [*InvalidError].
func New(cfg Config) (*Console, error) {
	if cfg.Title == "" {
		cfg.Title = "Stopbank"
	}
	if cfg.Warden == nil && cfg.Set == nil && len(cfg.Limiters) == 0 && cfg.DeadLetters == nil {
		return nil, &InvalidError{"Config", "empty", "one with a Warden, a Set, Limiters or DeadLetters"}
	}
	if cfg.Warden != nil && cfg.Warden.Limiter() == nil {
		return nil, &InvalidError{"Config.Warden", "zero", "one made by warden.New"}
	}
	cfg.Limiters, cfg.Hosts = slices.Clone(cfg.Limiters), slices.Clone(cfg.Hosts)
	for i, host := range cfg.Hosts {
		if host == "" || strings.ContainsAny(host, ":/") {
			return nil, &InvalidError{fmt.Sprintf("Config.Hosts[%d]", i), fmt.Sprintf("%q", host), "a name without a port, or *"}
		}
	}
	names := map[string]bool{}
	for i, l := range cfg.Limiters {
		switch field := fmt.Sprintf("Config.Limiters[%d]", i); {
		case l.Limiter == nil:
			return nil, &InvalidError{field + ".Limiter", nil, "a limiter"}
		case l.Name == "" || names[l.Name]:
			return nil, &InvalidError{field + ".Name", fmt.Sprintf("%q", l.Name), "a name that no other one has"}
		}
		names[l.Name] = true
	}
	var err error
	cfg.Interval, err = orDefault("Config.Interval", cfg.Interval, time.Second, 100*time.Millisecond, 10*time.Second, err)
	cfg.MaxStreams, err = orDefault("Config.MaxStreams", cfg.MaxStreams, 16, 1, 1000, err)
	cfg.MaxRejections, err = orDefault("Config.MaxRejections", cfg.MaxRejections, 50, 1, 1000, err)
	cfg.WriteTimeout, err = orDefault("Config.WriteTimeout", cfg.WriteTimeout, 10*time.Second, 10*time.Millisecond, time.Minute, err)
	if err != nil {
		return nil, err
	}
	return &Console{
		cfg: cfg, done: make(chan struct{}), asking: make(chan struct{}, 1), past: past{limits: make([]tallies, len(cfg.Limiters))},
	}, nil
}

// orDefault is v, or preset if v is 0, or what is wrong with it; an earlier error is kept.
func orDefault[T int | time.Duration](field string, v, preset, least, most T, err error) (T, error) {
	if v == 0 {
		v = preset
	}
	if err == nil && (v < least || v > most) {
		err = &InvalidError{field, v, fmt.Sprintf("%v to %v, or 0 (%v)", least, most, preset)}
	}
	return v, err
}
