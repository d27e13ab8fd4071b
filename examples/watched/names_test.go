// One event has one name: response, log, console and metrics use the same reason.

package main

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/console"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardenhttp"
	"github.com/stopbank/stopbank/warden/wardenprom"
	"github.com/stopbank/stopbank/warden/wardenslog"
)

// one is a controller whose limit is always 1.
type one struct{}

func (one) Step(monitor.Sample) decision.ControlDecision {
	return decision.ControlDecision{Seq: 1, TargetConcurrency: 1}
}

type openBreaker struct{}

func (openBreaker) Allow() (func(error), error) { return nil, errors.New("open") }

// full takes the only slot of a limiter or of a compartment until the test ends.
func full(t *testing.T, w *warden.Warden, c *bulkhead.Compartment) {
	t.Helper()
	if c != nil {
		_, p, err := c.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Release(nil) })
	} else {
		p, err := w.TryAcquire(warden.Task{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Release() })
	}
}

// TestOneNameForOneEvent causes events that each have a name of their own, and looks for it in all outputs. What becomes of every
// reason in one of them is tested there: wardenhttp's TestCauseStatusHeadersBody, console's TestEveryReasonHasItsWords.
func TestOneNameForOneEvent(t *testing.T) {
	const (
		ofLimiter = "stopbank_limiter_rejected_total{"
		ofPart    = "stopbank_compartment_rejected_total{"
		partLeft  = "stopbank_compartment_left_total{"
	)
	for _, c := range []struct {
		name, metric string
		part         *bulkhead.CompartmentConfig // that requests ask; nil: they ask the warden
		cause        func(*testing.T, *warden.Warden, *bulkhead.Compartment)
	}{
		{"closed", ofLimiter, nil, func(_ *testing.T, w *warden.Warden, _ *bulkhead.Compartment) { w.Limiter().Close() }},
		{"deadline_exceeded", ofLimiter, nil, full},
		{"queue_overflow", ofPart, &bulkhead.CompartmentConfig{}, full},
		{"timeout_queued", partLeft, &bulkhead.CompartmentConfig{MaxQueue: 1, MaxWait: time.Millisecond}, full},
		{"deadline_exceeded", partLeft, &bulkhead.CompartmentConfig{MaxQueue: 1}, full},
		{"breaker_open", ofPart, &bulkhead.CompartmentConfig{Breaker: openBreaker{}}, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			var lines bytes.Buffer
			log := wardenslog.New(slog.New(slog.NewJSONHandler(&lines, nil)))
			w, err1 := warden.New(warden.Config{Controller: one{},
				Limiter: limiter.Config{Name: "api", MaxQueue: 1, Observer: log.Limiter(), Initial: one{}.Step(monitor.Sample{})}})
			seen, shown := wardenprom.Config{Wardens: map[string]*warden.Warden{"api": w}}, console.Config{Warden: w}
			protect, err2 := wardenhttp.Config{Timeout: time.Second}, error(nil)
			var part *bulkhead.Compartment
			if c.part != nil {
				c.part.Name, c.part.Guaranteed = "checkout", 1
				shown.Set, err2 = bulkhead.New(bulkhead.Config{Total: 1, Compartments: []bulkhead.CompartmentConfig{*c.part},
					Observer: log.Bulkhead()})
				part, seen.Sets = shown.Set.Compartment("checkout"), map[string]*bulkhead.Set{"shop": shown.Set}
				protect.Compartment = func(*http.Request) *bulkhead.Compartment { return part }
			}
			collector, err3 := wardenprom.New(seen)
			registry := prometheus.NewRegistry()
			page, err4 := console.New(shown)
			middleware, err5 := wardenhttp.New(w, protect)
			if err := errors.Join(err1, err2, err3, registry.Register(collector), err4, err5); err != nil {
				t.Fatal(err)
			}

			if c.cause != nil {
				c.cause(t, w, part)
			}
			get := func(from http.Handler, path string) string {
				rec := httptest.NewRecorder()
				from.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, http.NoBody))
				return rec.Body.String()
			}
			answer := get(middleware.Handler(http.NotFoundHandler()), "/checkout")
			if err := log.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			var counted []string // the line of the metric
			for line := range strings.Lines(get(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), "/")) {
				if strings.HasPrefix(line, c.metric) && !strings.HasSuffix(line, " 0\n") {
					counted = append(counted, line)
				}
			}
			named, state := `"reason":"`+c.name+`"`, get(page, "/state.json")
			for output, found := range map[string]bool{
				"answer": strings.Contains(answer, named), "log": strings.Contains(lines.String(), named),
				"console": strings.Contains(state, named) || strings.Contains(state, `"`+c.name+`":`), // a breaker's are counted there
				"metrics": len(counted) == 1 && strings.Contains(counted[0], `reason="`+c.name+`"`),
			} {
				if !found {
					t.Errorf("%s of %s: not in the %s: %s%q", c.name, c.metric, output, answer, counted)
				}
			}
		})
	}
}
