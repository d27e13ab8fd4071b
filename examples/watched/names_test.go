// One event has one name: response, log, console and metrics use the same reason.

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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

// steady is a controller with a constant decision.
type steady decision.ControlDecision

// Step implements the Controller of a warden.Config.
func (s steady) Step(monitor.Sample) decision.ControlDecision { return decision.ControlDecision(s) }

// service is a warden and a compartment behind the middleware, with log, console and metrics.
type service struct {
	t       *testing.T
	warden  *warden.Warden
	set     *bulkhead.Set
	part    *bulkhead.Compartment // nil: requests ask the warden
	console *console.Console
	log     *wardenslog.Logger
	lines   bytes.Buffer
	metrics *prometheus.Registry
	http    wardenhttp.Config
}

func serving(t *testing.T, l limiter.Config, part *bulkhead.CompartmentConfig) *service {
	t.Helper()
	s := &service{t: t, metrics: prometheus.NewRegistry()}
	var err error
	check := func() {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s.log = wardenslog.New(slog.New(slog.NewJSONHandler(&s.lines, nil)))
	l.Name, l.Observer = "api", s.log.Limiter()
	l.MaxQueue = cmp.Or(l.MaxQueue, 1)
	l.Initial.Seq, l.Initial.TargetConcurrency = 1, cmp.Or(l.Initial.TargetConcurrency, 1)
	s.warden, err = warden.New(warden.Config{Limiter: l, Controller: steady(l.Initial)})
	check()
	seen, shown := wardenprom.Config{Wardens: map[string]*warden.Warden{"api": s.warden}}, console.Config{Warden: s.warden}
	if part != nil {
		part.Name, part.Guaranteed = "checkout", 1
		set, err := bulkhead.New(bulkhead.Config{Total: 1, Compartments: []bulkhead.CompartmentConfig{*part},
			Observer: s.log.Bulkhead()})
		if err != nil {
			t.Fatal(err)
		}
		s.set, s.part = set, set.Compartment("checkout")
		seen.Sets, shown.Set = map[string]*bulkhead.Set{"shop": set}, set
		s.http.Compartment = func(r *http.Request) *bulkhead.Compartment {
			return set.Compartment(strings.TrimPrefix(r.URL.Path, "/"))
		}
	}
	collector, err := wardenprom.New(seen)
	if err == nil {
		err = s.metrics.Register(collector)
	}
	check()
	s.console, err = console.New(shown)
	check()
	return s
}

// send sends a request through the middleware to next.
func (s *service) send(ctx context.Context, path string, next http.HandlerFunc) *httptest.ResponseRecorder {
	s.t.Helper()
	m, err := wardenhttp.New(s.warden, s.http)
	if err != nil {
		s.t.Fatal(err)
	}
	rec := httptest.NewRecorder()
	m.Handler(next).ServeHTTP(rec, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
	return rec
}

func (s *service) plain() *httptest.ResponseRecorder {
	return s.send(s.t.Context(), "/checkout", func(http.ResponseWriter, *http.Request) {})
}

// full takes the only slot until the test ends.
func (s *service) full() *service {
	s.t.Helper()
	if s.part != nil {
		_, p, err := s.part.Acquire(s.t.Context())
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { p.Release(nil) })
		return s
	}
	p, err := s.warden.Limiter().TryAcquire(limiter.Task{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { p.Release() })
	return s
}

// waits queues a task, which is canceled after d.
func (s *service) waits(p decision.Priority, d time.Duration) {
	ctx, cancel := context.WithTimeoutCause(s.t.Context(), d, context.Canceled)
	stop, done := context.WithCancel(context.WithoutCancel(ctx)) // a context without a deadline
	context.AfterFunc(ctx, done)
	go func() {
		defer cancel()
		if s.part != nil {
			_, _, _ = s.part.Acquire(stop)
			return
		}
		_, _ = s.warden.Limiter().Acquire(stop, limiter.Task{Priority: p})
	}()
	synctest.Wait()
}

// canceled sends a request that its client cancels after a second.
func (s *service) canceled() *httptest.ResponseRecorder {
	ctx, cancel := context.WithCancel(s.t.Context())
	time.AfterFunc(time.Second, cancel)
	return s.send(ctx, "/checkout", nil)
}

// again acquires a second slot while it holds the first.
func (s *service) again() *httptest.ResponseRecorder {
	return s.send(s.t.Context(), "/checkout", func(w http.ResponseWriter, r *http.Request) {
		var err error
		if s.part != nil {
			_, _, err = s.part.Acquire(r.Context())
		} else {
			_, _, err = s.warden.Acquire(r.Context(), warden.Task{})
		}
		if !wardenhttp.WriteError(w, s.part, err) {
			s.t.Errorf("not a rejection: %v", err)
		}
	})
}

// insists wants a second slot at once, which holds the first.
func (s *service) insists() *httptest.ResponseRecorder {
	return s.send(s.t.Context(), "/checkout", func(w http.ResponseWriter, _ *http.Request) {
		_, err := s.warden.TryAcquire(warden.Task{})
		if !wardenhttp.WriteError(w, nil, err) {
			s.t.Errorf("not a rejection: %v", err)
		}
	})
}

type openBreaker struct{}

func (openBreaker) Allow() (func(error), error) { return nil, errors.New("open") }

const ( // counters of the events
	limiterRejected = "stopbank_limiter_rejected_total"
	partRejected    = "stopbank_compartment_rejected_total"
	partLeft        = "stopbank_compartment_left_total"
)

// events lists every rejection and timeout with a function that causes it.
func events() []event {
	decides := func(d decision.ControlDecision) limiter.Config {
		return limiter.Config{Initial: d, Rand: func() float64 { return 0 }}
	}
	part := func(c bulkhead.CompartmentConfig) *bulkhead.CompartmentConfig { return &c }
	return []event{
		{"pressure_high", limiterRejected, decides(decision.ControlDecision{ShedProbability: 1}), nil,
			func(s *service) *httptest.ResponseRecorder { return s.full().plain() }},
		{"probabilistic_shedding", limiterRejected, decides(decision.ControlDecision{ShedProbability: .5}), nil,
			func(s *service) *httptest.ResponseRecorder {
				s.full().waits(decision.Normal, time.Second)
				return s.plain()
			}},
		{"queue_overflow", limiterRejected, limiter.Config{}, nil, func(s *service) *httptest.ResponseRecorder {
			s.full().waits(decision.Normal, time.Second)
			return s.plain()
		}},
		{"no_slot", limiterRejected, limiter.Config{}, nil, (*service).insists},
		{"priority_drop", limiterRejected, limiter.Config{}, nil, func(s *service) *httptest.ResponseRecorder {
			s.full()
			time.AfterFunc(time.Millisecond, func() { s.waits(decision.High, time.Second) })
			return s.plain()
		}},
		{"max_wait_exceeded", limiterRejected, limiter.Config{MaxQueue: 2, Initial: decision.ControlDecision{MaxWait: time.Second}},
			nil, func(s *service) *httptest.ResponseRecorder {
				return s.full().standing()
			}},
		{"deadline_exceeded", limiterRejected, limiter.Config{}, nil, func(s *service) *httptest.ResponseRecorder {
			s.http.Timeout = time.Second
			return s.full().plain()
		}},
		{"canceled", "stopbank_limiter_canceled_total", limiter.Config{}, nil,
			func(s *service) *httptest.ResponseRecorder { return s.full().canceled() }},
		{"closed", limiterRejected, limiter.Config{}, nil, func(s *service) *httptest.ResponseRecorder {
			s.warden.Limiter().Close()
			return s.plain()
		}},
		{"reentry", "stopbank_warden_reentries_total", limiter.Config{}, nil, (*service).again},

		{"queue_overflow", partRejected, limiter.Config{}, part(bulkhead.CompartmentConfig{}),
			func(s *service) *httptest.ResponseRecorder { return s.full().plain() }},
		{"timeout_queued", partLeft, limiter.Config{}, part(bulkhead.CompartmentConfig{MaxQueue: 1, MaxWait: time.Second}),
			func(s *service) *httptest.ResponseRecorder {
				return s.full().plain()
			}},
		{"deadline_exceeded", partLeft, limiter.Config{}, part(bulkhead.CompartmentConfig{MaxQueue: 1}),
			func(s *service) *httptest.ResponseRecorder {
				s.http.Timeout = time.Second
				return s.full().plain()
			}},
		{"max_wait_exceeded", partLeft, limiter.Config{}, part(bulkhead.CompartmentConfig{MaxQueue: 100}),
			func(s *service) *httptest.ResponseRecorder {
				s.set.Apply(decision.ControlDecision{Seq: 1, TargetConcurrency: 1, MaxWait: time.Second})
				return s.full().standing()
			}},
		{"canceled", partLeft, limiter.Config{}, part(bulkhead.CompartmentConfig{MaxQueue: 1}),
			func(s *service) *httptest.ResponseRecorder { return s.full().canceled() }},
		{"breaker_open", partRejected, limiter.Config{}, part(bulkhead.CompartmentConfig{Breaker: openBreaker{}}), (*service).plain},
		{"reentry", partRejected, limiter.Config{}, part(bulkhead.CompartmentConfig{}), (*service).again},
		{"unknown_compartment", "stopbank_bulkhead_unknown_total", limiter.Config{}, part(bulkhead.CompartmentConfig{}),
			func(s *service) *httptest.ResponseRecorder {
				return s.send(s.t.Context(), "/nowhere", nil)
			}},
		{"timeout_running", "stopbank_compartment_answered_total", limiter.Config{},
			part(bulkhead.CompartmentConfig{Timeout: time.Second}), func(s *service) *httptest.ResponseRecorder {
				return s.send(s.t.Context(), "/checkout", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
			}},
	}
}

// standing sends a request without a deadline to a queue that stands.
func (s *service) standing() *httptest.ResponseRecorder {
	s.waits(decision.Normal, time.Hour)
	time.Sleep(time.Second)
	synctest.Wait()
	return s.plain()
}

type event struct {
	name    string
	metric  string
	limiter limiter.Config
	part    *bulkhead.CompartmentConfig
	drive   func(*service) *httptest.ResponseRecorder
}

// in returns the outputs in which the event has this name: some of "answer", "log", "console" and "metric".
func (e event) in(t *testing.T, name string) (found []string) {
	t.Helper()
	s := serving(t, e.limiter, e.part)
	rec := e.drive(s)
	var problem struct{ Reason string }
	if err := json.Unmarshal(rec.Body.Bytes(), &problem); err != nil {
		t.Fatalf("%d %s: %v", rec.Code, rec.Body, err)
	}
	if header := rec.Header().Get("Warden-Rejected"); problem.Reason == name && (header == "" || header == name) {
		found = append(found, "answer")
	}
	if err := s.log.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(s.lines.String(), `"reason":"`+name+`"`) ||
		strings.Contains(s.lines.String(), `"msg":"stopbank: `+name+`"`) {
		found = append(found, "log")
	}
	page := httptest.NewRecorder()
	s.console.ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/state.json", nil))
	if strings.Contains(page.Body.String(), `"reason":"`+name+`"`) || strings.Contains(page.Body.String(), `"`+name+`":`) {
		found = append(found, "console")
	}
	families, err := s.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			named := strings.HasPrefix(f.GetName(), strings.TrimSuffix(e.metric, "_total")) && m.GetCounter().GetValue() > 0
			for _, l := range m.GetLabel() {
				if l.GetName() == "reason" || l.GetName() == "outcome" {
					named = named && l.GetValue() == name
				}
			}
			if named && !slices.Contains(found, "metric") {
				found = append(found, "metric")
			}
		}
	}
	return found
}

// TestOneNameForOneEvent causes each event and looks for its name in all outputs. Canceled requests are not logged, and neither
// are a warden's re-entries and unknown compartments, which have metrics of their own.
func TestOneNameForOneEvent(t *testing.T) {
	covered := map[string]bool{}
	for _, e := range events() {
		covered[e.name] = true
		where, want := e.metric, []string{"answer", "log", "console", "metric"}
		switch {
		case e.name == "canceled":
			want = []string{"answer", "console", "metric"}
		case e.name == "reentry" && e.part == nil, e.name == "unknown_compartment":
			want = []string{"answer", "metric"}
		}
		t.Run(where+" "+e.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := e.in(t, e.name); !slices.Equal(got, want) {
					t.Errorf("found in %q, want %q", got, want)
				}
			})
			synctest.Test(t, func(t *testing.T) { // no other name is found, except in metrics that have no label for the name
				if got := e.in(t, "no_such_reason"); slices.ContainsFunc(got, func(where string) bool { return where != "metric" }) {
					t.Errorf("another name is found in %q", got)
				}
			})
		})
	}
	for _, r := range append(limiter.Reasons(), bulkhead.TimeoutQueued, bulkhead.BreakerOpen, decision.Reentry) {
		if !covered[string(r)] {
			t.Errorf("no event has the reason %s", r)
		}
	}
}
