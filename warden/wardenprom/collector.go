// The collector: what it is asked for, and what a source that fails may cost.

package wardenprom

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/limiter"
)

// Config says what a [Collector] shows. The keys of the maps become the labels warden and limiter, limiter, set, gate,
// ledger and dispatcher: each is valid UTF-8, 1 to 128 bytes. A warden is shown with its limiter, under one name.
type Config struct {
	Wardens     map[string]*warden.Warden
	Limiters    map[string]*limiter.Limiter
	Sets        map[string]*bulkhead.Set
	Gates       map[string]Gate
	Ledgers     map[string]Ledger
	Dispatchers map[string]Dispatcher

	// Timeout is how long a scrape waits for its sources, more than 0; 0: 2 s.
	Timeout time.Duration
}

const (
	longestLabel   = 128
	defaultTimeout = 2 * time.Second
)

// ErrInvalid is what every [*InvalidError] is.
var ErrInvalid = errors.New("wardenprom: invalid argument")

// InvalidError says which field or argument was wrong, what it was, and what is allowed.
type InvalidError struct {
	Field   string
	Value   any
	Allowed string
}

// Error names field, value and what is allowed.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("wardenprom: %s is %v; allowed: %s", e.Field, e.Value, e.Allowed)
}

// Is reports whether target is ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// Collector is a prometheus.Collector. It may be collected by any number of goroutines and must come from [New].
type Collector struct {
	families map[string]described
	sources  []*source
	timeout  time.Duration
}

type described struct {
	family

	desc *prometheus.Desc
}

// source is one thing that is shown. Only one goroutine at a time asks it.
type source struct {
	label    string // what it is and its name, such as "gate/login"
	read     func(put put)
	busy     atomic.Bool
	failures atomic.Uint64
}

// put takes the value of a family, with the values of its labels.
type put func(name string, value float64, labels ...string)

// New returns a collector. It starts no goroutine and asks nobody yet. The error is an [*InvalidError].
func New(cfg Config) (*Collector, error) {
	c := &Collector{families: map[string]described{}, timeout: cfg.Timeout}
	if cfg.Timeout < 0 {
		return nil, &InvalidError{"Config.Timeout", cfg.Timeout, "more than 0, or 0 (2s)"}
	}
	if c.timeout == 0 {
		c.timeout = defaultTimeout
	}
	for _, f := range families() {
		c.families[f.name] = described{f, prometheus.NewDesc(f.name, f.help, f.labels, nil)}
	}
	for name := range cfg.Wardens {
		if _, twice := cfg.Limiters[name]; twice {
			return nil, &InvalidError{"Config.Limiters", name, "names that no warden has"}
		}
	}
	err := cmp.Or( // the first mistake
		add(c, "Wardens", "warden", cfg.Wardens, func(w *warden.Warden) bool { return w != nil && w.Limiter() != nil }, readWarden),
		add(c, "Limiters", "limiter", cfg.Limiters, func(l *limiter.Limiter) bool { return l != nil }, readLimiter),
		add(c, "Sets", "set", cfg.Sets, func(s *bulkhead.Set) bool { return s != nil }, readSet),
		add(c, "Gates", "gate", cfg.Gates, func(g Gate) bool { return g.Stats != nil }, readGate),
		add(c, "Ledgers", "ledger", cfg.Ledgers, func(l Ledger) bool { return l.Stats != nil }, readLedger),
		add(c, "Dispatchers", "dispatcher", cfg.Dispatchers, func(d Dispatcher) bool { return d.Stats != nil }, readDispatcher),
	)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// add makes the sources of one kind.
func add[T any](c *Collector, field, kind string, of map[string]T, valid func(T) bool, read func(put, string, T)) error {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if err := checkLabel("Config."+field, name); err != nil {
			return err
		}
		v := of[name]
		if !valid(v) {
			return &InvalidError{fmt.Sprintf("Config.%s[%q]", field, name), "nil or zero", "one that can be asked"}
		}
		c.sources = append(c.sources, &source{label: kind + "/" + name, read: func(p put) { read(p, name, v) }})
	}
	return nil
}

func checkLabel(field, name string) error {
	if name == "" || len(name) > longestLabel || !utf8.ValidString(name) {
		return &InvalidError{field, fmt.Sprintf("%.140q", name), "a name of valid UTF-8, 1 to 128 bytes"}
	}
	return nil
}

// Describe sends every metric that a Collector can have.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.families {
		ch <- d.desc
	}
}

// Collect asks all sources at the same time and sends what they say within Config.Timeout.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	timer := time.NewTimer(c.timeout)
	defer timer.Stop()
	answers := make([]chan []prometheus.Metric, len(c.sources))
	for i, s := range c.sources {
		answers[i] = c.ask(s)
	}
	late := false
	for i, s := range c.sources {
		var metrics []prometheus.Metric
		if !late {
			select {
			case metrics = <-answers[i]:
			case <-timer.C:
				late = true
			}
		}
		if late {
			select {
			case metrics = <-answers[i]:
			default:
			}
		}
		if metrics == nil {
			s.failures.Add(1)
		}
		for _, m := range metrics {
			ch <- m
		}
		failures := c.families["stopbank_scrape_failures_total"]
		ch <- prometheus.MustNewConstMetric(failures.desc, failures.kind, float64(s.failures.Load()), s.label)
	}
}

// ask has a goroutine of its own ask the source, unless the one before has not come back. What is received is nil if the
// source failed.
func (c *Collector) ask(s *source) chan []prometheus.Metric {
	answer := make(chan []prometheus.Metric, 1)
	if !s.busy.CompareAndSwap(false, true) {
		answer <- nil
		return answer
	}
	go func() {
		var all []prometheus.Metric
		whole := false
		defer func() {
			if !whole {
				_ = recover() // or the source has ended its goroutine
				all = nil
			}
			s.busy.Store(false)
			answer <- all
		}()
		all = []prometheus.Metric{}
		seen := map[string]bool{}
		s.read(func(name string, value float64, labels ...string) {
			d := c.families[name]
			for i := range labels {
				labels[i] = clean(labels[i])
			}
			m, err := prometheus.NewConstMetric(d.desc, d.kind, value, labels...)
			if key := fmt.Sprintf("%s%q", name, labels); err == nil && !seen[key] { // two alike would spoil the whole scrape
				seen[key] = true
				all = append(all, m)
			}
		})
		whole = true
	}()
	return answer
}

// Register registers all collectors at r or, if one cannot be, none of them. The error is that of r.Register, such as a
// prometheus.AlreadyRegisteredError, or an [*InvalidError] if r or a collector is nil, or r cannot be used.
func Register(r prometheus.Registerer, all ...prometheus.Collector) (err error) {
	if isNil(r) {
		return &InvalidError{"r", "nil", "a registry"}
	}
	var done []prometheus.Collector
	whole := false
	defer func() {
		if v := recover(); v != nil {
			err = &InvalidError{"r", fmt.Sprintf("one that panics: %v", v), "a registry that can be used"}
		}
		for _, c := range done {
			if !whole {
				r.Unregister(c)
			}
		}
	}()
	for _, c := range all {
		if isNil(c) { // a registry would call it in a goroutine of its own
			return &InvalidError{"collector", "nil", "one made by this package or any other"}
		}
		if err := r.Register(c); err != nil {
			return err
		}
		done = append(done, c)
	}
	whole = true
	return nil
}

// isNil is whether v is nil, or a nil pointer.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}
