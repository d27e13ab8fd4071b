// SPDX-License-Identifier: Apache-2.0

// The load report: who gets it, in which form, and who does not pay for it (H28).

package wardenhttp_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardenhttp"
)

// measured is a sampler that measures the same each time.
type measured monitor.Sample

func (m measured) Sample() monitor.Sample { return monitor.Sample(m) }

// reportOf reads a report as Envoy's parser does: a form, then names and numbers separated by commas, each name once.
func reportOf(rt *rapid.T, header string) map[string]float64 {
	text, ok := strings.CutPrefix(header, "TEXT ")
	if !ok {
		rt.Fatalf("H28: %q is not in the text form", header)
	}
	report := map[string]float64{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		number, err := strconv.ParseFloat(value, 64)
		if _, again := report[name]; err != nil || again {
			rt.Fatalf("H28: %q: %q: %v", header, part, err)
		}
		report[name] = number
	}
	return report
}

// TestPropertyLoadIsForTheTrusted: trusted requests get the report with whatever answer, and nobody else does.
func TestPropertyLoadIsForTheTrusted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		slots, trusted := rapid.IntRange(0, 1).Draw(rt, "slots"), rapid.Bool().Draw(rt, "trusted")
		used := rapid.SampledFrom([]float64{0, 0.001, 0.5, 0.8333333, 1}).Draw(rt, "used")
		served := rapid.SampledFrom([]uint64{0, 1, 2500}).Draw(rt, "served")
		abandoned := rapid.Uint64Range(0, 20).Draw(rt, "abandoned")
		late := rapid.Bool().Draw(rt, "late")
		path := rapid.SampledFrom([]string{"/work", "/work", "/healthz"}).Draw(rt, "path")
		cfg := wardenhttp.Config{
			LoadReports: rapid.Bool().Draw(rt, "reports"), Buffered: rapid.Bool().Draw(rt, "buffered"), Timeout: time.Minute,
			Trusted: func(r *http.Request) bool { return r.Header.Get("Balancer") != "" },
			Exempt:  func(r *http.Request) bool { return r.URL.Path == "/healthz" },
		}
		rec := httptest.NewRecorder()
		var l warden.Load
		synctest.Test(t, func(t *testing.T) {
			w := must(warden.New(warden.Config{
				Controller: constant{decision.ControlDecision{Seq: 1, TargetConcurrency: slots, ShedProbability: 1}},
				Sampler: measured{
					Utilization: monitor.Reading{Value: used, OK: true}, Service: monitor.Service{Count: served, Abandoned: abandoned},
				},
			}))(t)
			for range 20 {
				time.Sleep(100 * time.Millisecond)
				w.SampleIfDue()
			}
			l = w.Load()
			h := handle(t, w, cfg, func(w http.ResponseWriter, r *http.Request) {
				if late && path == "/work" {
					<-r.Context().Done()
				} else {
					w.WriteHeader(http.StatusTeapot)
				}
			})
			r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
			if trusted {
				r.Header.Set("Balancer", "1")
			}
			h.ServeHTTP(rec, r)
			synctest.Wait()
		})
		got := rec.Result().Header.Get("Endpoint-Load-Metrics")
		if !cfg.LoadReports || !trusted || path == "/healthz" || used == 0 || served == 0 {
			if got != "" {
				rt.Fatalf("H28: %q", got)
			}
			return
		}
		report := reportOf(rt, got)
		near := func(name string, want float64) bool {
			v, ok := report[name]
			return ok && v >= want*0.999 && v <= want*1.001
		}
		if len(report) != 3 || !near("application_utilization", l.Utilization) || !near("rps_fractional", l.Served) ||
			!near("eps", l.Failed) || l.Utilization < used*0.99 {
			rt.Fatalf("H28: %q for %+v, with a status of %d", got, l, rec.Code)
		}
		if slots == 0 && rec.Code != http.StatusServiceUnavailable {
			rt.Fatalf("H28: %d without a slot", rec.Code)
		}
	})
}

// A request that gets no report costs what it does where nobody gets one.
func TestLoadReportsCostTheOthersNothing(t *testing.T) {
	cost := func(reports bool) float64 {
		cfg := wardenhttp.Config{LoadReports: reports, Trusted: always(false)}
		h := newGuard(t, 1, 0).handle(t, cfg, func(http.ResponseWriter, *http.Request) {})
		rec, req := httptest.NewRecorder(), newRequest()
		return testing.AllocsPerRun(100, func() { h.ServeHTTP(rec, req) })
	}
	if without, with := cost(false), cost(true); with > without {
		t.Errorf("H28: a request that gets no report costs %v allocations, and %v where nobody does", with, without)
	}
}
