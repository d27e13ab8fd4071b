// The configuration of a console.

package console

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
)

// Config describes what a console shows. At least one of Warden, Set, Limiters and DeadLetters is required.
type Config struct {
	// Title is the page's heading, for instance the name of the service; "": "Stopbank".
	Title string
	// Instance is the name of this process, such as its pod's, shown beside the title; "": none. Set the same name in
	// wardenhttp.Config.Instance and as an attribute of the logger.
	Instance string
	// Warden, if not nil, is shown with its history.
	Warden *warden.Warden
	// Set, if not nil, is shown compartment by compartment.
	Set *bulkhead.Set
	// Limiters are further limiters to show, each under a unique name. Warden's own is always shown.
	Limiters []Limiter
	// DeadLetters, if not nil, returns the dead letters of dispatchers. It is called every few seconds while a page is open,
	// never concurrently. Its ctx ends after 5 s, and it should return then. Its error is shown.
	DeadLetters func(ctx context.Context) (DeadLetters, error)
	// Hosts are the host names, without ports, under which browsers may open the console, besides IP addresses and localhost;
	// "*": any. The check prevents DNS rebinding, in which a foreign page gives itself the console's address and reads it.
	// Behind a proxy that keeps the Host header, add the proxy's name.
	Hosts []string
	// Interval is the time between two updates of an open page, 100 ms to 10 s; 0: 1 s.
	Interval time.Duration
	// MaxStreams is the maximum number of open pages, 1 to 1000; 0: 16. Further ones get status 503, and the page then polls
	// instead. The same number bounds concurrent answers of state.json and rejections.json.
	MaxStreams int
	// MaxRejections is the maximum number of rejections shown, 1 to 1000; 0: 50. The limiters may keep fewer.
	MaxRejections int
	// WriteTimeout is how long a client may take to read each update before it is cut off, 10 ms to 1 m; 0: 10 s. It replaces
	// http.Server.WriteTimeout.
	WriteTimeout time.Duration
}

// Limiter is a limiter with its display name.
type Limiter struct {
	Name    string
	Limiter *limiter.Limiter
}

// Console is an [http.Handler] that serves the page, its files and the state as JSON, under any prefix with
// [http.StripPrefix]. Its methods are safe for concurrent use. It must come from [New].
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

// invalidField rejects a field of a Config, or an argument: the field as in Config.Limit.
func invalidField(field string, value any, allowed string) *decision.InvalidError {
	return &decision.InvalidError{Field: "console." + field, Value: value, Allowed: allowed}
}

// New returns a console. It starts and registers nothing. The error is an [*InvalidError].
func New(cfg Config) (*Console, error) {
	if cfg.Title == "" {
		cfg.Title = "Stopbank"
	}
	if cfg.Warden == nil && cfg.Set == nil && len(cfg.Limiters) == 0 && cfg.DeadLetters == nil {
		return nil, invalidField("Config", "empty", "at least one of Warden, Set, Limiters and DeadLetters")
	}
	if cfg.Warden != nil && cfg.Warden.Limiter() == nil {
		return nil, invalidField("Config.Warden", "zero", "nil or a warden made by warden.New")
	}
	cfg.Limiters, cfg.Hosts = slices.Clone(cfg.Limiters), slices.Clone(cfg.Hosts)
	for i, host := range cfg.Hosts {
		if host == "" || strings.ContainsAny(host, ":/") {
			return nil, invalidField(fmt.Sprintf("Config.Hosts[%d]", i), fmt.Sprintf("%q", host), "a host name without a port, or * for any")
		}
	}
	names := map[string]bool{}
	for i, l := range cfg.Limiters {
		switch field := fmt.Sprintf("Config.Limiters[%d]", i); {
		case l.Limiter == nil:
			return nil, invalidField(field+".Limiter", "nil", "a limiter")
		case l.Name == "" || names[l.Name]:
			return nil, invalidField(field+".Name", fmt.Sprintf("%q", l.Name), "a name that no other limiter has")
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

// orDefault returns v, or preset if v is 0, or an error if v is out of range; an earlier error is kept.
func orDefault[T int | time.Duration](field string, v, preset, least, most T, err error) (T, error) {
	if v == 0 {
		v = preset
	}
	if err == nil && (v < least || v > most) {
		err = invalidField(field, v, fmt.Sprintf("%v to %v, or 0 (the default, %v)", least, most, preset))
	}
	return v, err
}
