// SPDX-License-Identifier: Apache-2.0

// The configuration of a console.

package console

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
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
	// Limiters are further limiters to show, by display name. Warden's own is always shown.
	Limiters map[string]*limiter.Limiter
	// DeadLetters, if not nil, returns the dead letters of dispatchers, parked ones included. It is called every few seconds
	// while a page is open, never concurrently, and read to its end; the first 100 are shown, all are counted. Its ctx ends after
	// 5 s, and it should end then. Its first error is shown instead.
	DeadLetters func(ctx context.Context) iter.Seq2[DeadLetter, error]
	// Hosts are the host names, without ports, under which browsers may open the console, besides IP addresses and localhost;
	// "*": any. The check prevents DNS rebinding, in which a foreign page gives itself the console's address and reads it.
	// Behind a proxy that keeps the Host header, add the proxy's name.
	Hosts []string
	// Interval is the time between two updates of an open page, 100 ms to 10 s; 0: 1 s.
	Interval time.Duration
}

// The bounds of a console.
const (
	// maxStreams is the number of open pages. Further ones get status 503, and the page then polls instead. The same number
	// bounds concurrent answers of state.json and rejections.json.
	maxStreams    = 16
	maxRejections = 50               // shown; the limiters may keep fewer
	writeTimeout  = 10 * time.Second // for a client to read an update; it replaces http.Server.WriteTimeout
)

// namedLimiter is a limiter with its display name.
type namedLimiter struct {
	name    string
	limiter *limiter.Limiter
}

// Console is an [http.Handler] that serves the page, its files and the state as JSON, under any prefix with
// [http.StripPrefix]. Its methods are safe for concurrent use. It must come from [New].
type Console struct {
	cfg           Config
	limiters      []namedLimiter // by name
	maxStreams    int
	maxRejections int
	writeTimeout  time.Duration
	done          chan struct{} // closed by Close

	letters letterCache

	mu      sync.Mutex // guards all below; code under it may take the locks of the layers, but calls no function of Config
	streams int        // open
	answers int        // of state.json and rejections.json, being written
	closed  bool
	history history
}

// invalidField rejects a field of a Config, or an argument: the field as in Config.Limit.
func invalidField(field string, value any, allowed string) *decision.InvalidError {
	return &decision.InvalidError{Field: "console." + field, Value: value, Allowed: allowed}
}

// New returns a console. It starts and registers nothing. The error is a [*decision.InvalidError].
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
	cfg.Hosts = slices.Clone(cfg.Hosts)
	for i, host := range cfg.Hosts {
		if host == "" || strings.ContainsAny(host, ":/") {
			return nil, invalidField(
				fmt.Sprintf("Config.Hosts[%d]", i), fmt.Sprintf("%q", host), "a host name without a port, or * for any",
			)
		}
	}
	var limiters []namedLimiter
	for _, name := range slices.Sorted(maps.Keys(cfg.Limiters)) {
		switch l := cfg.Limiters[name]; {
		case name == "":
			return nil, invalidField("Config.Limiters", `a limiter named ""`, "limiters with names")
		case l == nil:
			return nil, invalidField(fmt.Sprintf("Config.Limiters[%q]", name), "nil", "a limiter")
		default:
			limiters = append(limiters, namedLimiter{name, l})
		}
	}
	cfg.Interval = cmp.Or(cfg.Interval, time.Second)
	if cfg.Interval < 100*time.Millisecond || cfg.Interval > 10*time.Second {
		return nil, invalidField("Config.Interval", cfg.Interval, "100ms to 10s, or 0 (the default, 1s)")
	}
	return &Console{
		cfg: cfg, limiters: limiters, maxStreams: maxStreams, maxRejections: maxRejections, writeTimeout: writeTimeout,
		done: make(chan struct{}), history: history{limits: make([]tallies, len(limiters))},
	}, nil
}
