// The metrics of a service as one thing, for package service.

package wardenprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/limiter"
)

// Exporter exports the metrics of services: its Watch is the Metrics of a service.Config.
type Exporter struct {
	// Registerer is where the metrics are registered, such as a *prometheus.Registry.
	Registerer prometheus.Registerer
}

// Watch returns observers that are histograms ([NewLimiterTimes], [NewCompartmentTimes]), and a function that registers them
// with a [Collector] of the warden and the set, or nothing: without a set, nothing of a set is registered. Their labels are
// name, valid UTF-8, 1 to 128 bytes. The errors are [*InvalidError]s, or those of [Register].
func (x Exporter) Watch(name string) (
	tasks limiter.Observer, calls bulkhead.Observer, export func(*warden.Warden, *bulkhead.Set) error, err error,
) {
	ofTasks, err := NewLimiterTimes(TimesConfig{Name: name})
	if err != nil {
		return nil, nil, nil, err
	}
	ofCalls, err := NewCompartmentTimes(TimesConfig{Name: name})
	if err != nil {
		return nil, nil, nil, err
	}
	export = func(w *warden.Warden, set *bulkhead.Set) error {
		sources, all := Config{Wardens: map[string]*warden.Warden{name: w}}, []prometheus.Collector{ofTasks}
		if set != nil {
			sources.Sets = map[string]*bulkhead.Set{name: set}
			all = append(all, ofCalls)
		}
		collector, err := New(sources)
		if err != nil {
			return err
		}
		return Register(x.Registerer, append(all, collector)...)
	}
	return ofTasks, ofCalls, export, nil
}
