// SPDX-License-Identifier: Apache-2.0

// The metrics of a service, for package service.

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

// Watch returns the observers of [Events], and a function that registers these with a collector of the warden and, unless it
// is nil, the set, or nothing. Their labels are name, valid UTF-8, 1 to 128 bytes. The error is a *decision.InvalidError, or
// that of [Register].
func (x Exporter) Watch(name string) (
	tasks limiter.Observer, calls bulkhead.Observer, export func(*warden.Warden, *bulkhead.Set) error, err error,
) {
	events, err := NewEvents(name)
	if err != nil {
		return nil, nil, nil, err
	}
	export = func(w *warden.Warden, set *bulkhead.Set) error {
		sources := Config{Wardens: map[string]*warden.Warden{name: w}}
		if set != nil {
			sources.Sets = map[string]*bulkhead.Set{name: set}
		}
		collector, err := New(sources)
		if err != nil {
			return err
		}
		return Register(x.Registerer, events, collector)
	}
	return events.Limiter(), events.Bulkhead(), export, nil
}
