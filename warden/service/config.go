// SPDX-License-Identifier: Apache-2.0

// The configuration of a service, and how its parts are made from it.

package service

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/console"
	"github.com/stopbank/stopbank/warden/internal/nilcheck"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenhttp"
	"github.com/stopbank/stopbank/warden/wardenslog"
)

// Config describes a [Service]. Name is required. The configurations of the parts may be zero; what New sets in them (names,
// instance, the warden and the set) must be left empty.
type Config struct {
	// Name is the name of the limiter in errors and logs, the label of its metrics and of the set's, and the console's heading:
	// 1 to 128 bytes of UTF-8.
	Name string
	// Instance is the name of this process in the log, on the console and in the answers to rejected clients, up to 128 bytes of
	// UTF-8; "": the host's name, which in Kubernetes is the pod's.
	Instance string
	// Logger receives the lines of wardenslog and of Run; nil: slog.Default() at the time of New.
	Logger *slog.Logger
	// Metrics exports the metrics: the method Watch of a wardenprom.Exporter. It returns the observers of a limiter and of a set
	// that are about to be made under this name, and a function that begins to export the warden and, unless it is nil, the set.
	// nil: none.
	Metrics func(name string) (
		tasks limiter.Observer, calls bulkhead.Observer, export func(*warden.Warden, *bulkhead.Set) error, err error,
	)

	// Warden configures the warden. Its Limiter.Observer is called before those of the metrics and the log.
	Warden warden.Config
	// Bulkhead configures the set, which receives the warden's decisions; without Compartments there is none. Its Observer is
	// called before those of the metrics and the log.
	Bulkhead bulkhead.Config
	// Compartment returns the compartment of a request, as wardenhttp.Config.Compartment does: requests then take a slot of
	// their compartment, and none of the warden's limiter. nil: requests take slots of the limiter, and handlers may take some of
	// the set's. A handler that does so holds both slots, and keeps the limiter's while it waits in the compartment's queue: one
	// slow compartment with a long queue can then fill the limiter and stop the other routes.
	Compartment func(*bulkhead.Set, *http.Request) *bulkhead.Compartment
	// HTTP configures the middleware.
	HTTP wardenhttp.Config
	// Console configures the console.
	Console console.Config

	// OperatorsAddr is the host:port on which Run serves [Service].Operators: on loopback, or on a network that only operators
	// and scrapers reach. "": Run does not serve it. New does not try the address: if Run cannot listen on it, Run returns an
	// error that begins with "service: Config.OperatorsAddr", and serves nothing.
	OperatorsAddr string
	// Spread is how long Run goes on serving after readiness has failed, until every load balancer has noticed, more than 0;
	// 0: 5 s.
	Spread time.Duration
	// ShutdownTimeout is how long Run waits after that for running and queued requests, more than 0; 0: 20 s. Together with
	// Spread it has to be less than what stops the process gives it: 30 s in Kubernetes.
	ShutdownTimeout time.Duration
}

const (
	longestName     = 128 // bytes
	defaultSpread   = 5 * time.Second
	defaultShutdown = 20 * time.Second
)

func invalid(field string, value any, allowed string) error {
	return &warden.InvalidError{Field: "service." + field, Value: value, Allowed: allowed}
}

// check reports the first field that New has to refuse itself; the constructors of the parts refuse the rest.
func (cfg *Config) check() error {
	const ours = "empty: New sets it"
	switch compartments := len(cfg.Bulkhead.Compartments); {
	case cfg.Name == "" || len(cfg.Name) > longestName || !utf8.ValidString(cfg.Name):
		return invalid("Config.Name", fmt.Sprintf("%.140q", cfg.Name), "1 to 128 bytes of UTF-8")
	case nilcheck.Optional(cfg.Warden.Limiter.Observer) != "":
		return invalid(
			"Config.Warden.Limiter.Observer", nilcheck.Optional(cfg.Warden.Limiter.Observer), "nil (none) or an observer",
		)
	case nilcheck.Optional(cfg.Bulkhead.Observer) != "":
		return invalid("Config.Bulkhead.Observer", nilcheck.Optional(cfg.Bulkhead.Observer), "nil (none) or an observer")
	case cfg.Spread < 0:
		return invalid("Config.Spread", cfg.Spread, "above 0, or 0 (the default, 5s)")
	case cfg.ShutdownTimeout < 0:
		return invalid("Config.ShutdownTimeout", cfg.ShutdownTimeout, "above 0, or 0 (the default, 20s)")
	case cfg.Warden.Limiter.Name != "":
		return invalid("Config.Warden.Limiter.Name", fmt.Sprintf("%q", cfg.Warden.Limiter.Name), ours+" to Config.Name")
	case cfg.HTTP.Instance != "":
		return invalid("Config.HTTP.Instance", fmt.Sprintf("%q", cfg.HTTP.Instance), ours+" to Config.Instance")
	case cfg.HTTP.Compartment != nil:
		return invalid("Config.HTTP.Compartment", "set", "nil: Config.Compartment is given the set as well")
	case cfg.Console.Title != "" || cfg.Console.Instance != "" || cfg.Console.Warden != nil || cfg.Console.Set != nil:
		return invalid("Config.Console", "set in Title, Instance, Warden or Set", ours)
	case compartments > 0 && cfg.Warden.ApplyTo != nil:
		return invalid("Config.Warden.ApplyTo", "set beside Config.Bulkhead", "nil: the set receives the decisions")
	case compartments == 0 && (cfg.Bulkhead.Total != 0 || cfg.Compartment != nil):
		return invalid(
			"Config.Bulkhead.Compartments", "empty", "one or more, or neither Config.Bulkhead.Total nor Config.Compartment",
		)
	}
	return nil
}

// New makes the parts of a service. It starts no goroutine, opens no listener, and registers metrics only if all else is valid.
// The error is an [*warden.InvalidError], that of the part whose configuration is invalid, or that of Config.Metrics.
func New(cfg Config) (*Service, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if host, err := os.Hostname(); cfg.Instance == "" && err == nil && len(host) <= longestName {
		cfg.Instance = host // otherwise the process has no name
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	s := &Service{
		Ready: new(wardenhttp.Readiness), Operators: http.NewServeMux(),
		logger: cfg.Logger.With("instance", cfg.Instance), operatorsAddr: cfg.OperatorsAddr,
		spread: cmp.Or(cfg.Spread, defaultSpread), shutdownTimeout: cmp.Or(cfg.ShutdownTimeout, defaultShutdown),
	}
	s.log = wardenslog.New(s.logger)
	var err error
	var tasks limiter.Observer
	var calls bulkhead.Observer
	var export func(*warden.Warden, *bulkhead.Set) error
	if cfg.Metrics != nil {
		if tasks, calls, export, err = cfg.Metrics(cfg.Name); err != nil {
			return nil, err
		}
	}
	if len(cfg.Bulkhead.Compartments) > 0 {
		cfg.Bulkhead.Observer = bulkhead.Observers(present(cfg.Bulkhead.Observer, calls, s.log.Bulkhead()))
		if s.Set, err = bulkhead.New(cfg.Bulkhead); err != nil {
			return nil, err
		}
		cfg.Warden.ApplyTo = s.Set
	}
	cfg.Warden.Limiter.Name = cfg.Name
	cfg.Warden.Limiter.Observer = limiter.Observers(present[limiter.Observer](cfg.Warden.Limiter.Observer, tasks, s.log.Limiter()))
	if s.Warden, err = warden.New(cfg.Warden); err != nil {
		return nil, err
	}
	cfg.HTTP.Instance = cfg.Instance
	if cfg.Compartment != nil {
		cfg.HTTP.Compartment = func(r *http.Request) *bulkhead.Compartment { return cfg.Compartment(s.Set, r) }
	}
	if s.middleware, err = wardenhttp.New(s.Warden, cfg.HTTP); err != nil {
		return nil, err
	}
	if t := cfg.HTTP.Timeout; t > 0 { // operators see it, and may change it
		if err := s.Warden.Adjust("Config.HTTP", func(b *warden.Bounds) { b.Timeout = t }); err != nil {
			return nil, err
		}
	}
	cfg.Console.Title, cfg.Console.Instance, cfg.Console.Warden, cfg.Console.Set = cfg.Name, cfg.Instance, s.Warden, s.Set
	if s.Console, err = console.New(cfg.Console); err != nil {
		return nil, err
	}
	s.Operators.Handle("/console/", http.StripPrefix("/console", s.Console))
	if export != nil {
		if err := export(s.Warden, s.Set); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// present returns those of all that are not nil.
func present[T any](all ...T) []T {
	return slices.DeleteFunc(all, func(one T) bool { return any(one) == nil })
}
