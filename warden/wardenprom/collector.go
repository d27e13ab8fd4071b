// SPDX-License-Identifier: Apache-2.0

// The collector: it reads all sources at each scrape, and bounds what a failing one costs.

package wardenprom

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/nilcheck"
	"github.com/stopbank/stopbank/warden/internal/unit"
	"github.com/stopbank/stopbank/warden/limiter"
)

// Config names the sources of the collector that [New] returns. The keys of the maps become the labels warden, limiter, set,
// gate, ledger and dispatcher: each is valid UTF-8, 1 to 128 bytes. A warden is shown with its limiter, under one name.
type Config struct {
	// Wardens and the others are the sources, by name; nil: none.
	Wardens  map[string]*warden.Warden
	Limiters map[string]*limiter.Limiter
	Sets     map[string]*bulkhead.Set
	Gates    map[string]*admission.Gate
	// Ledgers are counted at each scrape by Held and Ready, which query the engine: leave them out if that is expensive.
	Ledgers map[string]lease.Ledger
	// Dispatchers return the counters of each partition, as dispatch.Consumer.Stats does.
	Dispatchers map[string]func() []dispatch.Stats
	// Partitions is the number of partitions of a dispatcher's whole consumer group, owned by this process or not, by the name
	// of the dispatcher; missing: not exported.
	Partitions map[string]int

	// Timeout is how long a scrape waits for its sources, 1 ms or more; 0: 2 s.
	Timeout time.Duration
}

const defaultTimeout = 2 * time.Second

// invalidField rejects a field of a Config, or an argument: the field as in Config.Limit.
func invalidField(field string, value any, allowed string) *decision.InvalidError {
	return &decision.InvalidError{Field: "wardenprom." + field, Value: value, Allowed: allowed}
}

// collector reads sources. It is safe for concurrent use.
type collector struct {
	descriptions []*prometheus.Desc
	families     map[string]family
	sources      []*source
	timeout      time.Duration
}

// family is one metric as a registry knows it.
type family struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	labels int // how many it has
}

// source is one thing that is exported. One goroutine at a time reads it.
type source struct {
	label    string // its kind and its name, such as "gate/login"
	read     func(context.Context, put) error
	series   series // of its last reading
	reading  atomic.Bool
	failures atomic.Uint64
}

// New returns a collector that is safe for concurrent use. It starts no goroutine and reads no source yet. The error is an
// *decision.InvalidError.
func New(cfg Config) (prometheus.Collector, error) {
	if allowed := unit.Allowed(cfg.Timeout, unit.Network, 0, "0 (the default, 2s)"); allowed != "" {
		return nil, invalidField("Config.Timeout", cfg.Timeout, allowed)
	}
	for name, w := range cfg.Wardens {
		switch _, twice := cfg.Limiters[name]; {
		case twice:
			return nil, invalidField("Config.Limiters", name, "names that no warden has")
		case w != nil && w.Limiter() == nil:
			return nil, invalidField(fmt.Sprintf("Config.Wardens[%.140q]", name), "zero", "a source made by its New function")
		}
	}
	for name := range cfg.Partitions {
		if _, known := cfg.Dispatchers[name]; !known {
			return nil, invalidField("Config.Partitions", fmt.Sprintf("%.140q", name), "names of Config.Dispatchers")
		}
	}
	partitions := maps.Clone(cfg.Partitions)
	c := &collector{families: map[string]family{}, timeout: cfg.Timeout}
	if c.timeout == 0 {
		c.timeout = defaultTimeout
	}
	if err := cmp.Or(
		add(c, "Wardens", "warden", cfg.Wardens, always(readWarden)),
		add(c, "Limiters", "limiter", cfg.Limiters, always(readLimiter)),
		add(c, "Sets", "set", cfg.Sets, always(readSet)),
		add(c, "Gates", "gate", cfg.Gates, always(readGate)),
		add(c, "Ledgers", "ledger", cfg.Ledgers, func(ctx context.Context, p put, _ string, l lease.Ledger) error {
			return readLedger(ctx, p, l)
		}),
		add(c, "Dispatchers", "dispatcher", cfg.Dispatchers,
			func(_ context.Context, p put, name string, stats func() []dispatch.Stats) error {
				if n := partitions[name]; n > 0 {
					p.value("stopbank_dispatch_partitions", float64(n))
				}
				readDispatcher(p, stats())
				return nil
			}),
	); err != nil {
		return nil, err
	}
	for _, m := range metrics() {
		f := family{prometheus.NewDesc(m.name, m.help, m.labels, nil), prometheus.GaugeValue, len(m.labels)}
		if strings.HasSuffix(m.name, "_total") {
			f.kind = prometheus.CounterValue
		}
		c.families[m.name] = f
		c.descriptions = append(c.descriptions, f.desc)
	}
	return c, nil
}

// add appends the sources of one kind, in the order of their names.
func add[T any](c *collector, field, kind string, all map[string]T, read func(context.Context, put, string, T) error) error {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		v := all[name]
		if !validLabel(name) {
			return invalidName("Config."+field, name)
		}
		if missing := nilcheck.Required(v); missing != "" {
			return invalidField(fmt.Sprintf("Config.%s[%q]", field, name), missing, "a source made by its New function")
		}
		c.sources = append(c.sources, &source{label: kind + "/" + name, read: func(ctx context.Context, p put) error {
			p.labels = []string{name}
			return read(ctx, p, name, v)
		}})
	}
	return nil
}

// always adapts a read that cannot fail.
func always[T any](read func(put, T)) func(context.Context, put, string, T) error {
	return func(_ context.Context, p put, _ string, v T) error {
		read(p, v)
		return nil
	}
}

// Describe sends the description of every metric that the collector may have.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descriptions {
		ch <- d
	}
}

// Collect reads all sources concurrently and sends the values that arrive within Config.Timeout.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	answers := make([]<-chan []prometheus.Metric, len(c.sources))
	for i, s := range c.sources {
		answers[i] = c.ask(ctx, s)
	}
	for i, s := range c.sources {
		var values []prometheus.Metric
		select {
		case values = <-answers[i]:
		case <-ctx.Done():
			select { // a source that was in time is exported, however late the others are
			case values = <-answers[i]:
			default:
			}
		}
		if values == nil {
			s.failures.Add(1)
		}
		for _, v := range values {
			ch <- v
		}
		f := c.families[scrapeFailures]
		ch <- prometheus.MustNewConstMetric(f.desc, f.kind, float64(s.failures.Load()), cleanLabel(s.label))
	}
}

// ask reads the source in a goroutine of its own, unless the previous read has not returned. The answer is nil if the source
// panicked, failed or ended its goroutine.
func (c *collector) ask(ctx context.Context, s *source) <-chan []prometheus.Metric {
	answer := make(chan []prometheus.Metric, 1)
	if !s.reading.CompareAndSwap(false, true) {
		answer <- nil
		return answer
	}
	go func() {
		var whole []prometheus.Metric
		defer func() {
			_ = recover()
			s.reading.Store(false)
			answer <- whole
		}()
		r := &reading{families: c.families, last: s.series, now: make(series, len(s.series)), values: []prometheus.Metric{}}
		if s.read(ctx, put{reading: r}) == nil {
			s.series, whole = r.now, r.values
		}
	}()
	return answer
}

const longestLabel = 128 // bytes

// cleanLabel returns s as a label can have it: valid UTF-8, and not long.
func cleanLabel(s string) string {
	if len(s) > longestLabel {
		s = s[:longestLabel]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// validLabel reports whether a configured name can be a label as it is.
func validLabel(name string) bool {
	return name != "" && len(name) <= longestLabel && utf8.ValidString(name)
}

func invalidName(field, name string) error {
	return invalidField(field, fmt.Sprintf("%.140q", name), "a name of valid UTF-8, 1 to 128 bytes")
}
