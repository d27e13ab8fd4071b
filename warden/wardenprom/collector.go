// The collector, with bounds on the cost of a failing source.

package wardenprom

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/facts"
	"github.com/stopbank/stopbank/warden/internal/nilcheck"
	"github.com/stopbank/stopbank/warden/internal/unit"
	"github.com/stopbank/stopbank/warden/limiter"
)

// Config names the sources of a [Collector]. The keys of the maps become the labels of that name (for wardens both warden and
// limiter): each is valid UTF-8, 1 to 128 bytes. A warden is shown with its limiter, under one name.
type Config struct {
	Wardens     map[string]*warden.Warden
	Limiters    map[string]*limiter.Limiter
	Sets        map[string]*bulkhead.Set
	Gates       map[string]Gate
	Ledgers     map[string]Ledger
	Dispatchers map[string]Dispatcher

	// Timeout is how long a scrape waits for its sources, 1 ms or more; 0: 2 s.
	Timeout time.Duration
}

const defaultTimeout = 2 * time.Second

// invalidField rejects a field of a Config, or an argument: the field as in Config.Limit.
func invalidField(field string, value any, allowed string) *decision.InvalidError {
	return &decision.InvalidError{Field: "wardenprom." + field, Value: value, Allowed: allowed}
}

// Collector is a prometheus.Collector. It is safe for concurrent use and must come from [New].
type Collector struct {
	families map[string]family
	sources  []*facts.Source
	timeout  time.Duration
}

type family struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// New returns a collector. It starts no goroutine and reads no source yet. The error is an [*InvalidError].
func New(cfg Config) (*Collector, error) {
	if allowed := unit.Allowed(cfg.Timeout, unit.Network, 0, "0 (the default, 2s)"); allowed != "" {
		return nil, invalidField("Config.Timeout", cfg.Timeout, allowed)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	sources, wrong := facts.Build(facts.Config{
		Wardens: cfg.Wardens, Limiters: cfg.Limiters, Sets: cfg.Sets,
		Gates: facts.Gates(cfg.Gates), Ledgers: facts.Ledgers(cfg.Ledgers), Dispatchers: facts.Dispatchers(cfg.Dispatchers),
	})
	if wrong != nil {
		return nil, invalidField(wrong.Field, wrong.Value, wrong.Allowed)
	}
	c := &Collector{families: map[string]family{}, sources: sources, timeout: cfg.Timeout}
	for _, f := range facts.Families() {
		kind := prometheus.GaugeValue
		if f.Kind == facts.Count {
			kind = prometheus.CounterValue
		}
		c.families[f.Name] = family{prometheus.NewDesc(f.Name, f.Help, f.Labels, nil), kind}
	}
	return c, nil
}

// Describe sends the description of every metric that a Collector may have.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range c.families {
		ch <- f.desc
	}
}

// Collect reads all sources concurrently and sends the values that arrive within Config.Timeout.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, values := range facts.Poll(c.sources, c.timeout) {
		for _, v := range values {
			f := c.families[v.Name]
			if m, err := prometheus.NewConstMetric(f.desc, f.kind, v.Value, v.Labels...); err == nil {
				ch <- m
			}
		}
	}
}

// Register registers all collectors at r or, if one fails, none of them. The error is that of r.Register, such as a
// prometheus.AlreadyRegisteredError, or an [*InvalidError] if r or a collector is nil, or r panics.
func Register(r prometheus.Registerer, all ...prometheus.Collector) (err error) {
	if missing := nilcheck.Required(r); missing != "" {
		return invalidField("r", missing, "a registry")
	}
	var done []prometheus.Collector
	whole := false
	defer func() {
		if v := recover(); v != nil {
			err = invalidField("r", fmt.Sprintf("one that panics: %v", v), "a registry that can be used")
		}
		for _, c := range done {
			if !whole {
				r.Unregister(c)
			}
		}
	}()
	for _, c := range all {
		if missing := nilcheck.Required(c); missing != "" { // a registry would call it in a goroutine of its own
			return invalidField("collector", missing, "a collector")
		}
		if err := r.Register(c); err != nil {
			return err
		}
		done = append(done, c)
	}
	whole = true
	return nil
}

func checkLabel(field, name string) error {
	if !facts.Valid(name) {
		return invalidField(field, fmt.Sprintf("%.140q", name), facts.ValidNames)
	}
	return nil
}
