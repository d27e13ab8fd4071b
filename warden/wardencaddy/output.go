// Logs and metrics: those of a warden go where the configuration in force wants them.

package wardencaddy

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/wardenprom"
)

// output is a handler of logs that passes records to the logger of the configuration in force.
type output struct {
	to atomic.Pointer[slog.Logger] // nil: nobody listens yet
}

func (o *output) handler() slog.Handler {
	l := o.to.Load()
	if l == nil {
		return slog.DiscardHandler
	}
	return l.Handler()
}

// Enabled is that of the logger in force.
func (o *output) Enabled(ctx context.Context, level slog.Level) bool {
	return o.handler().Enabled(ctx, level)
}

// Handle passes the record on.
func (o *output) Handle(ctx context.Context, r slog.Record) error { return o.handler().Handle(ctx, r) }

// WithAttrs returns a handler with these attributes.
func (o *output) WithAttrs(attrs []slog.Attr) slog.Handler {
	return derived{o, func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) }}
}

// WithGroup returns a handler with this group.
func (o *output) WithGroup(name string) slog.Handler {
	return derived{o, func(h slog.Handler) slog.Handler { return h.WithGroup(name) }}
}

// derived is an output with attributes or groups.
type derived struct {
	*output
	of func(slog.Handler) slog.Handler
}

// Handle passes the record on.
func (d derived) Handle(ctx context.Context, r slog.Record) error {
	return d.of(d.handler()).Handle(ctx, r)
}

// WithAttrs returns a handler with these attributes as well.
func (d derived) WithAttrs(attrs []slog.Attr) slog.Handler {
	return derived{d.output, func(h slog.Handler) slog.Handler { return d.of(h).WithAttrs(attrs) }}
}

// WithGroup returns a handler with this group as well.
func (d derived) WithGroup(name string) slog.Handler {
	return derived{d.output, func(h slog.Handler) slog.Handler { return d.of(h).WithGroup(name) }}
}

// metrics is the collector of a generation: that of all its wardens, which come one after the other.
type metrics struct {
	mu   sync.Mutex // guards all; held while the wardens are read
	all  map[string]*shared
	read prometheus.Collector
}

// add adds a warden, and registers the collector with the first.
func (m *metrics) add(r *prometheus.Registry, name string, s *shared) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := m.all == nil
	all := map[string]*shared{name: s}
	maps.Copy(all, m.all)
	wardens, sets := map[string]*warden.Warden{}, map[string]*bulkhead.Set{}
	for name, s := range all {
		wardens[name] = s.warden
		if s.set != nil {
			sets[name] = s.set
		}
	}
	read, err := wardenprom.New(wardenprom.Config{Wardens: wardens, Sets: sets})
	if err != nil {
		return err
	}
	if m.all, m.read = all, read; first {
		return wardenprom.Register(r, &lazily{m, read}, s.events)
	}
	return wardenprom.Register(r, s.events)
}

// lazily is what a registry has of metrics: descriptions that do not depend on the wardens.
type lazily struct {
	*metrics
	descriptions prometheus.Collector
}

// Describe sends the descriptions.
func (l *lazily) Describe(ch chan<- *prometheus.Desc) { l.descriptions.Describe(ch) }

// Collect sends the values.
func (l *lazily) Collect(ch chan<- prometheus.Metric) {
	l.mu.Lock()
	read := l.read
	l.mu.Unlock()
	read.Collect(ch)
}
