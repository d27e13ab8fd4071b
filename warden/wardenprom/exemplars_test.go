// SPDX-License-Identifier: Apache-2.0

// Exemplars: which requests a histogram names, and that no ID breaks a request or a scrape.

package wardenprom_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenprom"
)

// exemplars returns those of a histogram's series with this outcome.
func exemplars(t testing.TB, r prometheus.Gatherer, outcome decision.Outcome) (all []*dto.Exemplar) {
	t.Helper()
	for _, f := range must(r.Gather())(t) {
		if f.GetName() != "stopbank_limiter_response_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "outcome" && l.GetValue() == string(outcome) {
					for _, b := range m.GetHistogram().GetBucket() {
						if b.GetExemplar() != nil {
							all = append(all, b.GetExemplar())
						}
					}
				}
			}
		}
	}
	return all
}

// labelsOf returns an exemplar's labels.
func labelsOf(e *dto.Exemplar) map[string]string {
	labels := map[string]string{}
	for _, l := range e.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}

func ended(outcome decision.Outcome, id string, took time.Duration) limiter.Event {
	e := event(outcome, 0, took)
	e.Task.ID, e.At = id, time.Now()
	return e
}

// What was rejected or took long is named; of the rest one in 128 is; nothing without an ID is; and of each series one in 10 ms.
func TestWhatIsWorthAnExemplar(t *testing.T) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			outcome decision.Outcome
			id      string
			took    time.Duration
			named   map[string]string
		}{
			{decision.Rejected, "a1", 0, map[string]string{"request_id": "a1"}},
			{decision.Rejected, trace, 0, map[string]string{"request_id": trace, "trace_id": trace}},
			{decision.Rejected, strings.Repeat("0", 32), 0, map[string]string{"request_id": strings.Repeat("0", 32)}},
			{decision.Rejected, strings.ToUpper(trace), 0, map[string]string{"request_id": strings.ToUpper(trace)}},
			{decision.Executed, "a2", 1001 * time.Millisecond, map[string]string{"request_id": "a2"}},
			{decision.Rejected, "", 0, nil},
			{decision.Executed, "", time.Hour, nil},
		} {
			events := must(wardenprom.NewEvents("l"))(t)
			o, r := events.Limiter(), registered(t, events)
			o.Observe(ended(c.outcome, c.id, c.took))
			o.Observe(ended(c.outcome, "soon after", c.took)) // within 10 ms
			all := exemplars(t, r, c.outcome)
			if c.named == nil {
				if len(all) != 1 || labelsOf(all[0])["request_id"] != "soon after" {
					t.Errorf("%s %q: %v", c.outcome, c.id, all)
				}
				continue
			}
			if len(all) != 1 || fmt.Sprint(labelsOf(all[0])) != fmt.Sprint(c.named) || all[0].GetValue() != c.took.Seconds() {
				t.Errorf("%s %q: %v, want %v", c.outcome, c.id, all, c.named)
			}
			time.Sleep(10 * time.Millisecond)
			o.Observe(ended(c.outcome, "later", c.took))
			if all = exemplars(t, r, c.outcome); len(all) != 1 || labelsOf(all[0])["request_id"] != "later" {
				t.Errorf("%s %q: 10 ms later: %v", c.outcome, c.id, all)
			}
		}
		events := must(wardenprom.NewEvents("l"))(t)
		o, r := events.Limiter(), registered(t, events)
		const n = 128 * 30
		named := map[string]bool{}
		for i := range n {
			time.Sleep(10 * time.Millisecond)
			o.Observe(ended(decision.Executed, fmt.Sprint(i), time.Millisecond))
			for _, e := range exemplars(t, r, decision.Executed) {
				named[labelsOf(e)["request_id"]] = true
			}
		}
		if len(named) < 5 || len(named) > 90 {
			t.Errorf("%d of %d were named, want about 30", len(named), n)
		}
	})
}

// Whatever an ID is, the observer does not panic, and a scrape in the format that has exemplars is whole.
func TestHostileIDs(t *testing.T) {
	events := must(wardenprom.NewEvents("l"))(t)
	l := newLimiter(t, 1, events.Limiter())
	held := must(l.TryAcquire(limiter.Task{}))(t)
	defer held.Release()
	r := registered(t, events)
	ids := []string{"\x00", "\xff\xfe", strings.Repeat("\xff", 1000), strings.Repeat("ü", 500), strings.Repeat("x", 128), "a\nb\"c\\d}",
		strings.Repeat("x", 117) + "ü", "# EOF\n", strings.Repeat("\xffx", 200)}
	for range 200 {
		b := make([]byte, rand.IntN(300))
		for i := range b {
			b[i] = byte(rand.Uint32())
		}
		ids = append(ids, string(b))
	}
	for i, id := range ids {
		time.Sleep(10 * time.Millisecond) // by the real clock: an exemplar is due
		_, _ = l.TryAcquire(limiter.Task{ID: id})
		if p := l.Stats().ObserverPanics; p > 0 {
			t.Fatalf("%q: the observer panicked", id)
		}
		for _, e := range exemplars(t, r, decision.Rejected) {
			got, runes := labelsOf(e)["request_id"], 0
			for name, value := range labelsOf(e) {
				runes += utf8.RuneCountInString(name) + utf8.RuneCountInString(value)
			}
			if !utf8.ValidString(got) || runes > 128 {
				t.Errorf("%q became %q, %d runes", id, got, runes)
			}
		}
		if i > 20 {
			continue
		}
		body := served(t, r, "application/openmetrics-text; version=1.0.0")
		if !strings.HasSuffix(body, "\n# EOF\n") || strings.Count(body, "\n# EOF\n") != 1 ||
			!strings.Contains(body, "# {") {
			t.Errorf("%q: a scrape of %d bytes without an end or an exemplar", id, len(body))
		}
	}
}
