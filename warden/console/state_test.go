// SPDX-License-Identifier: Apache-2.0

// The JSON: its fields, pinned, and that nothing that a layer may say makes it unreadable.

package console

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// shape lists the fields of decoded JSON with their types: of a list those of all elements, of a map with keys that are
// data those under "*".
func shape(into map[string]string, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		data := map[string]bool{".pools[].pools": true, ".history[].levels": true}[path] ||
			regexp.MustCompile(`\.(by_reason|by_priority|priorities|would_reject|outcomes|rejected|left)$`).MatchString(path)
		for key, value := range v {
			if data {
				key = "*"
			}
			shape(into, path+"."+key, value)
		}
	case []any:
		for _, value := range v {
			shape(into, path+"[]", value)
		}
	default:
		kind := map[bool]string{true: "null", false: fmt.Sprintf("%T", v)}[v == nil]
		if was := into[path]; was != "" && was != kind {
			kind = "float64" // or null, as well
		}
		into[path] = kind
	}
}

// full is a console with something of everything on it.
func full(t *testing.T) *Console {
	w := mustWarden(t, &script{
		sample: func() monitor.Sample {
			known := monitor.Reading{Value: 0.5, OK: true}
			return monitor.Sample{
				At: time.Now(), Gap: time.Second, Utilization: known, Runnable: known, Throttled: known, Share: known,
				Memory: monitor.Memory{Live: 1 << 20, Limit: 1 << 30},
				Pools:  []monitor.PoolReading{{Name: "db", PoolStats: monitor.PoolStats{InUse: 3, Max: 4, Waiting: known}}},
				Lag:    monitor.Lag{P50: time.Millisecond, P90: 2 * time.Millisecond, P99: 3 * time.Millisecond, Count: 4},
				Service: monitor.Service{
					P50: 5 * time.Millisecond, P90: 6 * time.Millisecond, Count: 7, Throughput: 8, Concurrency: 9,
				},
			}
		},
		decide: func() decision.ControlDecision {
			return decision.ControlDecision{
				TargetConcurrency: 1, ShedProbability: 0.25, ValidFor: time.Minute, Expected: time.Millisecond, Yields: 3,
				Stale:   &decision.ControlDecision{TargetConcurrency: 1},
				Reasons: []decision.Reason{decision.NewReason("queueing", "lag_p90_seconds", 0.03, decision.Tighten)},
			}
		},
	})
	noError(t, w.Adjust("anna", func(b *warden.Bounds) { b.Timeout = time.Second }))
	l := mustLimiter(t, 0)
	set := mustSet(t, bulkhead.CompartmentConfig{Name: "checkout", Guaranteed: 1, MaxQueue: 1,
		Tenants: bulkhead.TenantsConfig{Max: 1}},
		bulkhead.CompartmentConfig{Name: "analytics", Max: 1},
		bulkhead.CompartmentConfig{Name: "rehearsal", Max: 1, Mode: decision.DryRun})
	c := mustNew(t, Config{Title: "full", Warden: w, Set: set, Limiters: map[string]*limiter.Limiter{"reports": l}})
	for range 2 {
		c.state(new(cursor)) // so that there is a before
		time.Sleep(time.Second)
		p := must(w.TryAcquire(warden.Task{}))(t)
		if _, err := w.TryAcquire(warden.Task{Name: "rejected", Priority: decision.High, Deadline: time.Now().Add(time.Second)}); err == nil {
			t.Fatal("a second slot")
		}
		p.Release()
		_, _ = l.TryAcquire(decision.Task{Name: "never"})
		noError(t, l.SetMode(decision.DryRun))
		rehearsed := must(l.TryAcquire(decision.Task{Name: "never, if it counted"}))(t)
		rehearsed.Release()
		noError(t, l.SetMode(decision.Enforce))
		for name, runs := range map[string]int{"rehearsal": 2, "checkout": 1, "analytics": 2} { // the second one inside the first
			held := func() {}
			for range runs {
				_, permit, err := set.Compartment(name).Acquire(t.Context())
				if before := held; err == nil {
					held = func() { before(); permit.Release(nil) }
				}
			}
			held()
		}
	}
	must(w.TryAcquire(warden.Task{Name: "holds", ID: "r1"}))(t)
	noError(t, l.SetMode(decision.DryRun))
	must(l.TryAcquire(decision.Task{Name: "holds too", Priority: decision.Critical}))(t)
	noError(t, l.SetMode(decision.Enforce))
	plan := set.Plan()
	plan.By = "anna"
	must(set.Resize(plan))(t)
	return c
}

var update = flag.Bool("update", false, "write the fields of the JSON instead of comparing them")

// TestStateFields pins the fields: one that is gone, new or of another type is a change of what readers of the JSON rely on. A new
// one must have a value in full, or it is pinned as null. With -update it writes them.
func TestStateFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := full(t)
		body := must(json.Marshal(c.state(new(cursor))))(t)
		got := map[string]string{}
		shape(got, "", any(decode(t, string(body))))
		var b strings.Builder
		for _, path := range slices.Sorted(maps.Keys(got)) {
			fmt.Fprintf(&b, "%s %s\n", path, got[path])
		}
		const file = "testdata/fields.golden"
		if *update {
			noError(t, os.WriteFile(file, []byte(b.String()), 0o644))
		}
		want := must(os.ReadFile(file))(t)
		if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")); diff != "" {
			t.Fatalf("the fields are not those of warden/console/%s; if that is meant: make api (-file +code)\n%s", file, diff)
		}
	})
}

func TestStateValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := full(t)
		body := must(json.Marshal(c.state(new(cursor))))(t)
		s := decode(t, string(body))
		for path, want := range map[string]any{
			"version": 1.0, "title": "full", "interval_ms": 1000.0,
			"warden executed": 2.0, "warden rejected": 2.0, "warden by_reason no_slot": 2.0, "warden target": 1.0,
			"warden decision_state": "applied", "warden decision shed": 0.25,
			"warden decision reasons 0 signal": "lag_p90_seconds", "warden decision reasons 0 value": 0.03,
			"history 1 utilization": 0.5, "history 1 lag_p90_ms": 2.0, "history 1 service_p90_ms": 6.0, "history 1 rejected": 1.0,
			"history 1 pressure": nil, "decisions 0 first_seq": 1.0, "decisions 0 last_seq": 2.0, "decisions 0 reasons 0 code": "queueing",
			"set compartments 0 finished": 2.0, "set compartments 1 rejected_total": 2.0, "set compartments 0 name": "checkout",
			"limiters 0 rejected": 2.0, "pools 1 pools compartment:analytics rejected": 1.0, "pools 1 pools limiter:reports rejected": 1.0,
		} {
			var steps []any
			for step := range strings.FieldsSeq(path) {
				if n, err := strconv.Atoi(step); err == nil {
					steps = append(steps, n)
				} else {
					steps = append(steps, step)
				}
			}
			if got := at(t, s, steps...); got != want {
				t.Errorf("%s is %v, want %v", path, got, want)
			}
		}
		byLimiter := map[any]int{}
		last := ""
		for i, r := range at(t, s, "rejections").([]any) {
			byLimiter[at(t, r, "limiter")]++
			if when := at(t, r, "at").(string); i > 0 && when > last {
				t.Error("the rejections are not the newest first")
			} else {
				last = when
			}
			if at(t, r, "limiter") == "warden" && (at(t, r, "task") != "rejected" || at(t, r, "priority") != 64.0 ||
				at(t, r, "priority_name") != "high" || at(t, r, "reason") != "no_slot" || at(t, r, "in_flight") != 1.0 ||
				at(t, r, "decision", "target") != 1.0 || at(t, r, "shed_below") != nil || at(t, r, "deadline") == nil ||
				!strings.HasPrefix(at(t, r, "text").(string), `rejected: no_slot: task "rejected", priority high, deadline in `)) {
				t.Errorf("a rejection is %v", r)
			}
		}
		if fmt.Sprint(byLimiter) != "map[analytics:2 rehearsal:2 reports:5 warden:2]" {
			t.Errorf("rejections by limiter: %v", byLimiter)
		}
		const worst = "Rejected 2 of 4 (50 %) in the last 1 s, 2 high among them; most because no slot was free, and they could not queue " +
			"(no_slot). Controller: CPU overload, p90 scheduler delay 30 ms (queueing); limit 1."
		if at(t, s, "verdicts", 0, "level") != "act" || at(t, s, "verdicts", 0, "text") != worst {
			t.Errorf("verdicts %v", at(t, s, "verdicts"))
		}
	})
}

// TestStateAnything: whatever a sampler, a controller and the names of tasks are, the state is JSON, and not much of it.
func TestStateAnything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wild := math.NaN()
		s := &script{
			sample: func() monitor.Sample {
				r := monitor.Reading{Value: wild, OK: true}
				return monitor.Sample{
					Utilization: r, Runnable: r,
					Throttled: r, Gap: math.MinInt64, Service: monitor.Service{Throughput: wild, Concurrency: wild},
				}
			},
			decide: func() decision.ControlDecision {
				return decision.ControlDecision{
					ShedProbability: wild,
					Reasons:         []decision.Reason{decision.NewReason("<b>\xff", strings.Repeat("s", 1<<16), wild, "odd")},
				}
			},
		}
		w := mustWarden(t, s)
		name := "\xff\x00\u2028</script>" + strings.Repeat("ä", 1<<16)
		c := mustNew(t, Config{Warden: w, Title: name})
		for _, wild = range []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64, 0} {
			time.Sleep(100 * time.Millisecond) // then a turn of the pipeline is due
			_, _ = w.TryAcquire(warden.Task{Name: name, Deadline: time.Unix(1<<40, 0)})
			_, _ = w.TryAcquire(warden.Task{Name: name, Priority: -128})
		}
		body := must(json.Marshal(c.state(new(cursor))))(t)
		decoded := decode(t, string(body))
		if n := len(at(t, decoded, "history").([]any)); n < 5 {
			t.Errorf("%d readings", n)
		}
		if deadline := at(t, decoded, "rejections", 1, "deadline"); deadline != nil {
			t.Errorf("a deadline that RFC 3339 cannot write is %v", deadline)
		}
		if n := len(at(t, decoded, "rejections").([]any)); n != 12 {
			t.Errorf("%d rejections", n)
		}
		if len(body) > 100_000 || !utf8.Valid(body) || strings.ContainsAny(string(body), "\n\r<") {
			t.Errorf("%d bytes: %.300s", len(body), body)
		}
	})
}

func TestClip(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "abc": "abc", "abcd": "abc…", "aää": "aä…", "ääx": "ä…", "\xff\xff\xff\xff": "\xff\xff\xff…",
	} {
		if got := truncate(in, 3); got != want {
			t.Errorf("clip(%q) = %q, want %q", in, got, want)
		}
	}
}
