// SPDX-License-Identifier: Apache-2.0

// What a console may be made of, and what nonsense gets.

package console

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
)

func TestBadConfig(t *testing.T) {
	w, l := mustWarden(t, new(script)), mustLimiter(t, 1)
	for want, cfg := range map[string]Config{
		"Config is empty":                       {},
		"Config.Warden is zero":                 {Warden: new(warden.Warden)},
		`Config.Hosts[1] is "a:80"`:             {Warden: w, Hosts: []string{"a", "a:80"}},
		`Config.Limiters["a"] is nil`:           {Limiters: map[string]*limiter.Limiter{"a": nil}},
		`Config.Limiters is a limiter named ""`: {Limiters: map[string]*limiter.Limiter{"": l}},
		"Config.Interval is 99ms":               {Warden: w, Interval: 99 * time.Millisecond},
		"Config.Interval is 10.1s":              {Warden: w, Interval: 10100 * time.Millisecond},
		"Config.Interval is -1s":                {Warden: w, Interval: -time.Second},
	} {
		c, err := New(cfg)
		var invalid *decision.InvalidError
		if c != nil || !errors.Is(err, decision.ErrInvalid) || !errors.As(err, &invalid) || invalid.Allowed == "" ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("New = %v, %v; want an error that says %q", c, err, want)
		}
	}
}

// TestCompartmentFields: each number of a compartment is on the page under the name that bulkhead gives it.
func TestCompartmentFields(t *testing.T) {
	in := bulkhead.CompartmentSnapshot{
		Share:     bulkhead.Share{Name: "a", Mode: decision.DryRun, Guaranteed: 11, Lendable: 12, Max: 13, MaxQueue: 14},
		Effective: bulkhead.Share{Guaranteed: 15, Lendable: 16, Max: 17}, Criticality: decision.Critical,
		Rejected: map[string]uint64{"queue_overflow": 3, "canceled": 100},
		Left:     map[string]uint64{"deadline_exceeded": 4, "canceled": 200},
		Outcomes: map[string]uint64{"succeeded": 5}, WouldReject: map[string]uint64{"pressure_high": 6}, RejectionRate: 0.25,
		Tenants: &bulkhead.TenantsSnapshot{Keys: 6, Max: 7},
		Execution: bulkhead.Execution{Count: 8, Mean: time.Millisecond, P50: 2 * time.Millisecond, P90: 3 * time.Millisecond,
			P99: 4 * time.Millisecond},
		Unhealthy: "ill", OldestRunning: 5 * time.Millisecond,
	}
	fields := reflect.ValueOf(&in).Elem()
	for i := range fields.NumField() {
		switch f := fields.Field(i); f.Kind() {
		case reflect.Int:
			f.SetInt(int64(1000 + i))
		case reflect.Uint64:
			f.SetUint(uint64(2000 + i))
		}
	}
	through := func(v any) map[string]any {
		b := must(json.Marshal(v))(t)
		return decode(t, string(b))
	}
	out := through(setJSON(bulkhead.Snapshot{Compartments: []bulkhead.CompartmentSnapshot{in}}))
	got := at(t, out, "compartments", 0).(map[string]any)
	for name, want := range through(in) {
		if diff := cmp.Diff(want, got[name]); !slices.Contains([]string{"execution", "effective", "max_wait", "timeout", "oldest_running"}, name) &&
			diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
	for name, want := range map[string]any{
		"rejected_total": 7.0, "executions": 8.0, "execution_mean_ms": 1.0, "execution_p50_ms": 2.0, "execution_p90_ms": 3.0,
		"execution_p99_ms": 4.0, "oldest_running_ms": 5.0,
		"healthy": false, "unhealthy": "ill", "criticality_name": "critical",
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}

// TestVerdicts: which level, and which words.
func TestVerdicts(t *testing.T) {
	counted := func(p pool) pool { p.Name = "l"; return p }
	lately := func(executed, rejected uint64, by map[string]uint64) *recent {
		return &recent{Seconds: 10, Executed: executed, Rejected: rejected, ByReason: by}
	}
	of := func(r *recent, by map[string]uint64) *recent { r.ByPriority = by; return r }
	judged := func(direction string) *decisionFields {
		return &decisionFields{
			Seq: 1, Target: 1024,
			Reasons: []reason{{Code: "busy", Signal: "lag", Value: 0.5, Direction: direction, Text: "the CPU is busy"}},
		}
	}
	decided := func(target int, r decision.Reason) *decisionFields {
		return decisionJSON(&decision.ControlDecision{Seq: 1, TargetConcurrency: target, Reasons: []decision.Reason{
			decision.NewReason("calm", "utilization", 0.79, decision.Relax), r,
		}})
	}
	slow := func(inflation float64) *decisionFields {
		return decided(256, decision.NewReason("service_slow", "service_inflation", inflation, decision.Tighten))
	}
	held := decided(80, decision.NewReason("held", "service_long", 600, decision.Hold).
		Because("600 run for long, the oldest GET /events for 1m0s"))
	applied := func(d *decisionFields) verdict {
		return (&wardenState{pool: pool{Recent: lately(1, 0, nil)}, Decision: d, DecisionState: string(decision.Applied)}).verdict()
	}
	stale := func(p pool, panics uint64) verdict {
		w := &wardenState{pool: p, Decision: judged("tighten"), DecisionState: string(decision.Stale), SilentForMS: 4200, Panics: panics}
		return w.verdict()
	}
	failed := func(n, of uint64) verdict { // normal tasks
		return pool{Recent: &recent{Seconds: 10, Executed: of, Failed: n, Priorities: map[string]ended{"normal": {Tasks: of, Failed: n}}}}.verdict()
	}
	const quiet, full = "Nothing rejected in the last 10 s", "no slot was free, nor room in the queue (queue_overflow)"
	for _, v := range []struct {
		got         verdict
		level, text string
	}{
		{counted(pool{Rejected: 7000}).verdict(), levelOK, "7,000 rejected since the start."},
		{counted(pool{Recent: lately(5, 0, nil)}).verdict(), levelOK, quiet + "."},
		{counted(pool{Recent: lately(5, 0, nil), Queued: 3}).verdict(), levelWatch, quiet + "; 3 wait in the queue."},
		{counted(pool{
			Recent: lately(5, 4, map[string]uint64{"canceled": 9, "pressure_high": 3, "closed": 1}), Queued: 1,
		}).verdict(), levelAct,
			"Rejected 4 of 9 (44 %) in the last 10 s; most because their priority is being shed (pressure_high); 1 waits in the queue."},
		{counted(pool{Recent: of(
			lately(5, 4, map[string]uint64{"own": 4}), map[string]uint64{"normal": 1, "high": 1, "critical": 2},
		)}).verdict(), levelAct,
			"Rejected 4 of 9 (44 %) in the last 10 s, 2 critical and 1 high among them; most as own."},
		{counted(pool{Recent: of(lately(5, 4, nil), map[string]uint64{"background": 3, "normal": 1})}).verdict(), levelAct,
			"Rejected 4 of 9 (44 %) in the last 10 s; the reason is not known."},
		{counted(pool{Recent: of(
			lately(5, 4, map[string]uint64{"queue_overflow": 4}), map[string]uint64{"background": 4},
		)}).verdict(), levelWatch,
			"Rejected 4 of 9 (44 %) in the last 10 s; most because " + full + "."},
		{failed(1, 100), levelWatch, "1 of 100 (1.0 %) failed in the last 10 s."},
		{failed(1, 101), levelOK, "1 of 101 (1.0 %) failed in the last 10 s."},
		{counted(pool{Recent: lately(0, 0, nil), stale: true}).verdict(), levelWatch,
			quiet + ". Its decision is stale: the controller is silent, and a reduced limit applies."},
		{counted(pool{Recent: lately(1, 0, nil), stale: true}).verdict(), levelAct,
			quiet + ". Its decision is stale: the controller is silent, and a reduced limit applies."},
		{counted(pool{Mode: "enforce", Recent: lately(5, 0, nil)}).verdict(), levelOK, quiet + "."},
		{counted(pool{Mode: "bypass", Recent: lately(5, 0, nil)}).verdict(), levelWatch,
			"Bypass: every task starts immediately, and none is evaluated. " + quiet + "."},
		{counted(pool{Mode: "dry_run", WouldReject: map[string]uint64{"closed": 1}}).verdict(),
			levelWatch, "Dry run: every task starts immediately. 0 rejected since the start."},
		{counted(pool{Mode: "dry_run", Recent: &recent{Seconds: 10,
			WouldReject: map[string]uint64{"pressure_high": 3, "deadline_exceeded": 1}}}).verdict(), levelWatch,
			"Dry run: every task starts immediately; 4 would have been rejected in the last 10 s, most because their priority is being shed (pressure_high). " + quiet + "."},
		{(&wardenState{pool: pool{Recent: lately(1, 0, nil)}}).verdict(), levelOK,
			quiet + ". The controller has not decided yet: the initial limit applies."},
		{applied(judged("hold")), levelOK, quiet + ". Controller: the CPU is busy (busy); limit 1,024."},
		{applied(judged("tighten")), levelWatch, quiet + ". Controller: the CPU is busy (busy); limit 1,024."},
		{applied(slow(6.07)), levelWatch,
			quiet + ". Controller: CPU pressure low, utilization 79 % (calm); execution time is 6.07 times its baseline (service_slow); limit 256."},
		{applied(held), levelWatch,
			quiet + ". Controller: CPU pressure low, utilization 79 % (calm); 600 run for long, the oldest GET /events for 1m0s (held); limit 80."},
		{applied(slow(1.02)), levelOK, quiet + ". Controller: CPU pressure low, utilization 79 % (calm); limit 256."},
		{stale(pool{Recent: lately(1, 1, map[string]uint64{"closed": 1})}, 2), levelAct,
			"Rejected 1 of 2 (50 %) in the last 10 s; most because the limiter is closed: the service is shutting down (closed). Its decision is stale: no sample for 4 s, so a reduced limit " +
				"applies. Sampler or controller hangs or panics, or the process gets no CPU. Sampler, controller or target panicked 2 times."},
		{stale(pool{Recent: lately(0, 0, nil), InFlight: 1}, 0), levelAct,
			quiet + ". Its decision is stale: no sample for 4 s, so a reduced limit applies. Sampler or controller hangs or panics, or the process gets no CPU."},
		{stale(pool{Recent: lately(0, 0, nil)}, 0), levelWatch,
			quiet + ". Its decision is stale: no sample for 4 s. No request has come, and Run is not running."},
		{compartment{Healthy: true}.verdict(), levelOK, ""},
		{compartment{Healthy: true, Mode: "bypass", WithoutSlot: 3}.verdict(),
			levelWatch, "Bypass: every call starts immediately; 3 run without a slot."},
		{compartment{Healthy: true, Mode: "dry_run", WouldReject: map[string]uint64{"queue_overflow": 2}}.verdict(), levelWatch,
			"Dry run: every call starts immediately; 2 would have been rejected since the start, most because " + full + "."},
		{compartment{Healthy: true, RejectionRate: 0.0123, Queued: 2, Abandoned: 1}.verdict(), levelWatch,
			"Rejected 1.2 % of the calls of the last minute; 2 wait in the queue; 1 abandoned: they run although their callers are gone, and hold slots."},
		{compartment{Healthy: true, CriticalityName: "critical", submitted: 180, failed: 89}.verdict(), levelWatch,
			"89 of 180 calls failed in the last minute (49 %)."},
		{compartment{Healthy: true, CriticalityName: "critical", submitted: 180, failed: 90}.verdict(), levelAct,
			"90 of 180 calls failed in the last minute (50 %)."},
		{compartment{Healthy: true, CriticalityName: "high", submitted: 1, failed: 1}.verdict(), levelWatch,
			"1 of 1 call failed in the last minute (100 %)."},
		{compartment{Healthy: true, CriticalityName: "critical", submitted: 200, failed: 1}.verdict(), levelOK, ""},
		{compartment{Healthy: true, RejectionRate: 0.0003}.verdict(), levelWatch, "Rejected <0.1 % of the calls of the last minute."},
		{compartment{Unhealthy: "too much is rejected", RejectionRate: 0.1, Queued: 2}.verdict(),
			levelAct, "Too much is rejected; 2 wait in the queue."},
		{compartment{Healthy: true, RejectionRate: 0.5, Guaranteed: 5, EffectiveGuaranteed: 4, stuckFor: 7 * time.Second,
			rejectedRecently: map[string]uint64{"timeout_queued": 2, "breaker_open": 3}}.verdict(), levelWatch,
			"All slots are in use, and no call has ended for 7 s; rejected 50 % of the calls of the last minute; most because the circuit breaker is open (breaker_open); " +
				"the controller leaves it 4 of 5 guaranteed slots."},
		{compartment{
			Healthy: true, RejectionRate: 0.74, Rejected: map[string]uint64{},
			Left: map[string]uint64{"timeout_queued": 3}, Outcomes: map[string]uint64{"timeout_running": 1},
		}.verdict(), levelWatch,
			"Rejected 74 % of the calls of the last minute; since the start, most because they waited too long for a slot (timeout_queued); " +
				"since the start, 1 call took longer than Timeout: the dependency, or this process, is slow (timeout_running)."},
		{compartment{Healthy: true, Mode: "dry_run", RejectionRate: 0.42, rejectedRecently: map[string]uint64{"timeout_queued": 3},
			timedOut: 1513}.verdict(), levelWatch,
			"Dry run: every call starts immediately; rejected 42 % of the calls of the last minute: before the switch, by the circuit breaker, or because their deadline had passed; " +
				"most because they waited too long for a slot (timeout_queued); in the last minute, 1,513 calls took longer than Timeout: the dependency, or this process, is slow (timeout_running)."},
		{compartment{Healthy: true, Outcomes: map[string]uint64{"timeout_running": 7}}.verdict(), levelOK, ""},
		{compartment{Healthy: true, Guaranteed: 5, EffectiveGuaranteed: 4, stuckFor: stuckAfter - 1}.verdict(), levelOK, ""},
	} {
		if v.got.Level != v.level || v.got.Text != v.text {
			t.Errorf("%s: %q\nwant\n%s: %q", v.got.Level, v.got.Text, v.level, v.text)
		}
	}
	s := &setState{Compartments: []compartment{
		{Name: "a", Healthy: true}, {Name: "b", Unhealthy: "x"}, {Name: "c", Healthy: true},
	}}
	if got := s.verdicts(); len(got) != 2 || got[0].Subject != "b" ||
		got[1].Text != "Healthy, nothing rejected in the last minute: a, c." {
		t.Errorf("a set: %+v", got)
	}
	s.Compartments = make([]compartment, 9)
	for i := range s.Compartments {
		s.Compartments[i].Healthy = true
	}
	if got := s.verdicts(); len(got) != 1 || got[0].Text != "9 healthy: nothing rejected in the last minute." {
		t.Errorf("a large set: %+v", got)
	}
	s.Stale, s.InFlight = true, 1
	if got := s.verdicts(); len(got) != 2 || got[0].Level != levelAct || !strings.Contains(got[0].Text, "stale") {
		t.Errorf("a set whose decision is stale: %+v", got)
	}
	all := &state{
		Warden: &wardenState{},
		Set:    &setState{Compartments: []compartment{{Name: "b", Unhealthy: "x"}, {Name: "q", Healthy: true, Queued: 1}}},
	}
	all.addVerdicts()
	if got := all.Verdicts; len(got) != 3 || got[0].Level != levelAct || got[1].Level != levelWatch || got[2].Level != levelOK {
		t.Errorf("not the worst first: %+v", got)
	}
}

// TestLookBack: what the looks of the last minute tell of a compartment: for which reasons it rejected, and how long it has
// been full of calls that do not end.
func TestLookBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := mustSet(t, bulkhead.CompartmentConfig{Name: "a", Guaranteed: 2, Max: 2, MaxQueue: 1, MaxWait: time.Second})
		c := mustNew(t, Config{Set: set})
		look := func() compartment { return c.state(new(cursor)).Set.Compartments[0] }
		reject := func(ctx context.Context) {
			if _, _, err := set.Compartment("a").Acquire(ctx); err == nil {
				t.Fatal("not rejected")
			}
		}
		first, second := acquire(t, set, "a"), acquire(t, set, "a")
		reject(t.Context()) // of this the first look knows only that it was before
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for i := range 8 {
			if got := look(); got.stuckFor != time.Duration(i)*time.Second || len(got.rejectedRecently) != min(i, 1) ||
				got.rejectedRecently["timeout_queued"] != uint64(i) {
				t.Fatalf("after %d s: %s, %v", i, got.stuckFor, got.rejectedRecently)
			}
			reject(gone) // whose caller left is none
			reject(t.Context())
		}
		first.Release(nil)
		third := acquire(t, set, "a")
		if got := look(); got.stuckFor != 0 {
			t.Errorf("a call has ended, and still %s", got.stuckFor)
		}
		time.Sleep(2 * time.Minute)
		if got := look(); len(got.rejectedRecently) != 0 {
			t.Errorf("after two minutes: %v", got.rejectedRecently)
		}
		second.Release(nil)
		third.Release(nil)
	})
}

// TestLookBackAtTimeouts: calls of the last minute that ran longer than Timeout are counted, and those before it are not.
func TestLookBackAtTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := mustSet(t, bulkhead.CompartmentConfig{Name: "stock", Guaranteed: 1, Timeout: time.Second})
		c := mustNew(t, Config{Set: set})
		look := func() compartment { return c.state(new(cursor)).Set.Compartments[0] }
		late := func() {
			_, _ = bulkhead.Do(t.Context(), set.Compartment("stock"), func(ctx context.Context) (int, error) {
				<-ctx.Done()
				return 0, ctx.Err()
			})
			synctest.Wait() // until the function has returned, too
		}
		late()
		if got := look(); got.timedOut != 0 || got.verdict().Level != levelOK {
			t.Errorf("before the first look: %d, %s", got.timedOut, got.verdict().Text)
		}
		late()
		if got := look(); got.timedOut != 1 || got.verdict().Level != levelWatch {
			t.Errorf("of the last minute: %d, %s", got.timedOut, got.verdict().Text)
		}
		time.Sleep(2 * time.Minute)
		if got := look(); got.timedOut != 0 {
			t.Errorf("after two minutes: %d", got.timedOut)
		}
	})
}

// TestLookBackAtFailures: a compartment whose calls fail is not among the healthy ones.
func TestLookBackAtFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := mustSet(t, bulkhead.CompartmentConfig{Name: "stock", Guaranteed: 1})
		c := mustNew(t, Config{Set: set})
		look := func() *setState { return c.state(new(cursor)).Set }
		fail := func() {
			defer func() { _ = recover() }()
			_, _ = bulkhead.Do(t.Context(), set.Compartment("stock"), func(context.Context) (int, error) { return 0, io.EOF })
			_, _ = bulkhead.Do(t.Context(), set.Compartment("stock"), func(context.Context) (int, error) { panic("no stock") })
		}
		fail()
		if got := look().Compartments[0].failed; got != 0 {
			t.Errorf("before the first look: %d", got)
		}
		fail()
		if v := look().verdicts(); len(v) != 1 || v[0].Level != levelWatch || v[0].Text != "2 of 2 calls failed in the last minute (100 %)." {
			t.Errorf("of the last minute: %+v", v)
		}
		time.Sleep(2 * time.Minute)
		if got := look().Compartments[0].failed; got != 0 {
			t.Errorf("after two minutes: %d", got)
		}
	})
}
