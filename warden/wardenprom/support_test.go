// SPDX-License-Identifier: Apache-2.0

// What the tests share: scrapes, read by Prometheus' own parser.

package wardenprom_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardenprom"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// registered is a registry with these collectors.
func registered(t testing.TB, all ...prometheus.Collector) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	noError(t, wardenprom.Register(r, all...))
	return r
}

// page is one scrape: the values by name and labels, as in `name{a="b"}`, and the families.
type page struct {
	text     string
	families map[string]*dto.MetricFamily
	values   map[string]float64
}

// served is what a handler of the registry answers to a scraper that accepts this format.
func served(t testing.TB, r prometheus.Gatherer, accept string) string {
	t.Helper()
	req, rec := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody), httptest.NewRecorder()
	req.Header.Set("Accept", accept)
	promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError, EnableOpenMetrics: true}).ServeHTTP(rec, req)
	if rec.Code != http.StatusOK {
		t.Fatal(rec.Body)
	}
	return rec.Body.String()
}

// scrape reads a scrape in the text format.
func scrape(t testing.TB, r prometheus.Gatherer) page {
	t.Helper()
	body := served(t, r, "text/plain")
	p := page{text: body, values: map[string]float64{}}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	p.families = must(parser.TextToMetricFamilies(strings.NewReader(body)))(t)
	for name, f := range p.families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			var pairs []string
			for _, l := range slices.Sorted(maps.Keys(labels)) {
				pairs = append(pairs, fmt.Sprintf("%s=%q", l, labels[l]))
			}
			key := name + "{" + strings.Join(pairs, ",") + "}"
			switch {
			case m.Counter != nil:
				p.values[key] = m.GetCounter().GetValue()
			case m.Gauge != nil:
				p.values[key] = m.GetGauge().GetValue()
			case m.Histogram != nil:
				p.values[key+" count"] = float64(m.GetHistogram().GetSampleCount())
				p.values[key+" sum"] = m.GetHistogram().GetSampleSum()
			}
		}
	}
	return p
}

// want checks values of a scrape.
func (p page) want(t testing.TB, values map[string]float64) {
	t.Helper()
	for key, v := range values {
		if got, ok := p.values[key]; !ok || got != v {
			t.Errorf("%s is %v (there: %v), want %v", key, got, ok, v)
		}
	}
}

// watcher is an observer of a ledger.
type watcher func(lease.Event)

func (w watcher) Observe(e lease.Event) { w(e) }

// newLedger returns a ledger in memory with the lease of "a" in it.
func newLedger(t testing.TB, o lease.Observer) lease.Ledger {
	t.Helper()
	l := must(lease.NewMemory(lease.Config{Observer: o}))(t)
	must(l.TryAcquire(t.Context(), "a", 1))(t)
	return l
}

// ledgerEvent returns the event of an acquired lease.
func ledgerEvent(t testing.TB) (e lease.Event) {
	t.Helper()
	newLedger(t, watcher(func(seen lease.Event) { e = seen }))
	return e
}

// parts are a sampler and a controller with constant answers.
type parts struct {
	sample   monitor.Sample
	decision decision.ControlDecision
}

func (p *parts) Sample() monitor.Sample                       { return p.sample }
func (p *parts) Step(monitor.Sample) decision.ControlDecision { return p.decision }

func newWarden(t testing.TB, p *parts, o limiter.Observer) *warden.Warden {
	t.Helper()
	return must(warden.New(warden.Config{Sampler: p, Controller: p, Limiter: limiter.Config{Observer: o}}))(t)
}

// sampled waits until a warden has so many samples: no event says when one is due.
func sampled(w *warden.Warden, n uint64) {
	for w.SampleIfDue(); w.Stats().Samples < n; w.SampleIfDue() {
		time.Sleep(time.Millisecond)
	}
}

func newLimiter(t testing.TB, target int, o limiter.Observer) *limiter.Limiter {
	t.Helper()
	return must(limiter.New(limiter.Config{Observer: o, Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: target}}))(t)
}

// must is for what cannot fail here: x := must(f())(t).
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		noError(t, err)
		return v
	}
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
