// SPDX-License-Identifier: Apache-2.0

// One reading of a source. What names a series does not change from scrape to scrape, and is kept: with 200 compartments there are
// some ten thousand.

package wardenprom

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// series are those that a source has.
type series map[identity]*named

// identity tells the series of one source apart.
type identity struct{ prefix, metric, part, label string }

// named is what is known of a series before it has a value.
type named struct {
	family
	labels []*dto.LabelPair
}

// reading gathers the values of a source.
type reading struct {
	families  map[string]family
	last, now series
	values    []prometheus.Metric
}

// put exports values of a source, or of a part of it, such as a compartment. The metrics' names begin with prefix.
type put struct {
	*reading
	prefix string
	labels []string // the names of source and part
}

// of returns the put of a part.
func (p put) of(prefix, part string) put {
	return put{p.reading, prefix, []string{p.labels[0], cleanLabel(part)}}
}

// value exports one value. own is the metric's own label, if it has one. A series that was exported already is left out, because a
// registry would reject the whole scrape.
func (p put) value(metric string, value float64, own ...string) {
	label := ""
	if len(own) > 0 {
		label = cleanLabel(own[0])
	}
	id := identity{p.prefix, metric, p.labels[len(p.labels)-1], label}
	if _, twice := p.now[id]; twice {
		return
	}
	n := p.last[id]
	if n == nil {
		n = &named{family: p.families[p.prefix+metric]}
		n.labels = prometheus.MakeLabelPairs(n.desc, append(slices.Clone(p.labels), label)[:n.family.labels])
	}
	p.now[id] = n
	p.values = append(p.values, &point{n, value})
}

// point is a value of a series.
type point struct {
	*named
	value float64
}

// Desc implements prometheus.Metric.
func (p *point) Desc() *prometheus.Desc { return p.desc }

// Write implements prometheus.Metric.
func (p *point) Write(out *dto.Metric) error {
	out.Label = p.labels
	if p.kind == prometheus.CounterValue {
		out.Counter = &dto.Counter{Value: &p.value}
	} else {
		out.Gauge = &dto.Gauge{Value: &p.value}
	}
	return nil
}
