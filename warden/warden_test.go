// SPDX-License-Identifier: Apache-2.0

// The pipeline as a whole: who ticks and when, what is passed on, what a broken part may do, and what nonsense gets.

package warden

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustNew(t testing.TB, cfg Config) *Warden {
	t.Helper()
	return must(New(cfg))(t)
}

// parts are a sampler, a controller and a target in one, that do what they are told.
type parts struct {
	mu      sync.Mutex
	times   []time.Time // when a sample was taken
	applied []decision.ControlDecision
	decide  func(n int) decision.ControlDecision
	broken  string // which part panics
}

func (p *parts) Sample() monitor.Sample {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.times = append(p.times, time.Now())
	if p.broken == "sampler" {
		panic("sampler")
	}
	return monitor.Sample{At: time.Now()}
}

func (p *parts) Step(s monitor.Sample) decision.ControlDecision {
	if p.broken == "controller" {
		panic("controller")
	}
	if p.decide != nil {
		return p.decide(len(p.times))
	}
	return decision.ControlDecision{Seq: uint64(len(p.times)), At: s.At, TargetConcurrency: 10}
}

func (p *parts) Apply(d decision.ControlDecision) {
	p.applied = append(p.applied, d)
	if p.broken == "target" {
		panic("target")
	}
}

func (p *parts) config() Config { return Config{Sampler: p, Controller: p, ApplyTo: p} }

func use(t *testing.T, w *Warden) {
	t.Helper()
	must(Do(t.Context(), w, Task{}, func(context.Context) (int, error) { return 1, nil }))(t)
}

// TestRunTicks: once in an interval while it runs, by itself; nothing before and nothing after; one at a time.
func TestRunTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(parts)
		w := mustNew(t, p.config())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		time.Sleep(time.Second + time.Millisecond)
		if s := w.Stats(); s.Samples != 10 || s.ByRequests != 0 || s.LargestGap != 100*time.Millisecond {
			t.Fatalf("after a second: %+v", s)
		}
		if err := w.Run(ctx); !errors.Is(err, ErrInvalid) {
			t.Fatalf("a second Run: %v", err)
		}
		for range 50 { // requests in time do not tick
			use(t, w)
			time.Sleep(10 * time.Millisecond)
		}
		if s := w.Stats(); s.ByRequests != 0 || s.Samples != 15 {
			t.Fatalf("the ticker was in time, and yet: %+v", s)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Fatalf("Run = %v", err)
		}
		time.Sleep(time.Minute)
		if s := w.Stats(); s.Samples != 15 {
			t.Fatalf("after its end: %+v", s)
		}
		go func() { ended <- w.Run(t.Context()) }()
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if s := w.Stats(); s.Samples != 16 {
			t.Fatalf("Run again: %+v", s)
		}
		if n := len(p.applied); n != 16 || p.applied[n-1].Seq != 16 {
			t.Fatalf("%d decisions applied, the last %+v", n, p.applied[n-1])
		}
	})
}

// A sample is late if the process, here its sampler, has stood still for half a second. A pause before Run, after it or without it is
// none, however long.
func TestLateSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var still atomic.Int64 // nanoseconds
		cfg := new(parts).config()
		cfg.Sampler = samplerFunc(func() monitor.Sample {
			time.Sleep(time.Duration(still.Load()))
			return monitor.Sample{At: time.Now()}
		})
		w := mustNew(t, cfg)
		wantLate := func(when string, want uint64) {
			t.Helper()
			synctest.Wait()
			if got := w.Stats().Late; got != want {
				t.Errorf("%s: %d samples were late, want %d", when, got, want)
			}
		}
		for range 3 {
			time.Sleep(time.Minute)
			use(t, w)
		}
		wantLate("between requests", 0)
		time.Sleep(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		time.Sleep(time.Second)
		wantLate("after a pause before Run", 0)
		still.Store(int64(590 * time.Millisecond))
		time.Sleep(10 * time.Second)
		still.Store(0)
		time.Sleep(time.Second)
		wantLate("less than half a second late", 0)
		for range 5 {
			still.Store(int64(1400 * time.Millisecond))
			time.Sleep(150 * time.Millisecond)
			still.Store(0)
			time.Sleep(5 * time.Second)
		}
		wantLate("stood still five times", 5)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		use(t, w)
		wantLate("after Run", 5)
	})
}

type samplerFunc func() monitor.Sample

func (f samplerFunc) Sample() monitor.Sample { return f() }

// TestRequestsDrive: without Run, each request that comes an interval after the last sample takes one, and no other does.
func TestRequestsDrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(parts)
		w := mustNew(t, p.config())
		use(t, w)
		if s := w.Stats(); s.Samples != 0 {
			t.Fatalf("the initial decision rules first: %+v", s)
		}
		for range 20 {
			time.Sleep(50 * time.Millisecond)
			var all sync.WaitGroup
			for range 5 {
				all.Go(func() { use(t, w) })
			}
			all.Wait()
		}
		if s := w.Stats(); s.Samples != 10 || s.ByRequests != 10 || s.LargestGap != 100*time.Millisecond {
			t.Fatalf("%+v", s)
		}
		time.Sleep(100 * time.Millisecond)
		w.SampleIfDue() // without asking for a slot
		w.SampleIfDue()
		if s := w.Stats(); s.Samples != 11 || s.ByRequests != 11 {
			t.Fatalf("Watch: %+v", s)
		}
		if got := w.Latest(); got.Decision.Seq != 11 || w.Limiter().Stats().Target != 10 {
			t.Fatalf("%+v, target %d", got, w.Limiter().Stats().Target)
		}
	})
}

// TestNumbersGoOn: a controller that begins to count anew is obeyed all the same.
func TestNumbersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &parts{decide: func(n int) decision.ControlDecision {
			return decision.ControlDecision{Seq: uint64(n%3 + 1), TargetConcurrency: n}
		}}
		w := mustNew(t, p.config())
		for n := 1; n <= 10; n++ {
			time.Sleep(100 * time.Millisecond)
			use(t, w)
			if s := w.Limiter().Stats(); s.Target != n {
				t.Fatalf("decision %d was not applied: target %d", n, s.Target)
			}
		}
	})
}

// TestBrokenParts: a panic in any part is contained and counted, is not repeated by every request, and the others go on.
func TestBrokenParts(t *testing.T) {
	for _, broken := range []string{"sampler", "controller", "target"} {
		synctest.Test(t, func(t *testing.T) {
			p := &parts{broken: broken}
			w := mustNew(t, p.config())
			for range 5 {
				time.Sleep(100 * time.Millisecond)
				for range 3 {
					use(t, w)
				}
			}
			if s := w.Stats(); s.Panics != 5 || s.Samples != 5 {
				t.Fatalf("%s: %+v", broken, s)
			}
		})
	}
}

// TestServiceIsFed: what ran, and what was discarded, reaches the next sample; once, however often it is released.
func TestServiceIsFed(t *testing.T) {
	w := mustNew(t, Config{})
	for i := range 5 {
		_, p, err := w.Acquire(t.Context(), Task{Name: "work"})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			p.Discard()
		}
		if p.Release() != (i > 0) || p.Release() || p.Discard() {
			t.Fatal("more than one release")
		}
	}
	if _, thrown := catch(func() {
		_, _ = Do(t.Context(), w, Task{}, func(context.Context) (int, error) { panic("mine") })
	}); thrown != "mine" {
		t.Fatalf("fn's panic became %v", thrown)
	}
	for _, err := range []error{nil, context.Canceled} { // the second is ended by its context, and fails
		ctx, cancel := context.WithCancel(t.Context())
		_, _ = Do(ctx, w, Task{}, func(context.Context) (int, error) { cancel(); return 0, err })
	}
	w.mu.Lock()
	w.turnLocked(false)
	w.mu.Unlock()
	if s := w.Latest().Sample.Service; s.Count != 6 || s.Abandoned != 1 {
		t.Fatalf("%+v; want the 4 released, the one that panicked and the one that was done; one discarded, and one abandoned", s)
	}
	if s := w.Limiter().Stats(); s.Running != 0 || s.Executed != 8 {
		t.Fatalf("%+v", s)
	}
}

func catch(f func()) (returned bool, thrown any) {
	defer func() { thrown = recover() }()
	f()
	return true, nil
}

// steady decides the same for ever, and lets no task yield: so the ticker gets no turn out of politeness.
type steady struct{}

func (steady) Step(s monitor.Sample) decision.ControlDecision {
	return decision.ControlDecision{Seq: 1, At: s.At, TargetConcurrency: 100}
}

// TestKeepsSampling saturates one processor with work that does not pause. The ticker starves there, as the first half
// shows, in which the requests are not the warden's; in the second they are, and see to it that samples are taken in time.
func TestKeepsSampling(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	saturate := func(run func(work func(context.Context) (int, error))) Stats {
		w := mustNew(t, Config{
			Interval:   10 * time.Millisecond,
			Controller: steady{}, Limiter: limiter.Config{Initial: steady{}.Step(monitor.Sample{})},
		})
		if run == nil {
			run = func(work func(context.Context) (int, error)) {
				if _, err := Do(t.Context(), w, Task{}, work); err != nil {
					t.Error(err)
				}
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- w.Run(ctx) }()
		var clients sync.WaitGroup
		began := time.Now()
		for range 30 {
			clients.Go(func() {
				for time.Since(began) < 600*time.Millisecond {
					run(func(context.Context) (n int, _ error) {
						for start := time.Now(); time.Since(start) < 3*time.Millisecond; n++ {
						}
						return n, nil
					})
				}
			})
		}
		clients.Wait()
		cancel()
		noError(t, <-ran)
		return w.Stats()
	}
	alone := saturate(func(work func(context.Context) (int, error)) { _, _ = work(t.Context()) })
	helped := saturate(nil)
	t.Logf("ticker alone: %d samples, largest gap %v", alone.Samples, alone.LargestGap)
	t.Logf(
		"with requests: %d samples, %d of them by requests, largest gap %v", helped.Samples, helped.ByRequests, helped.LargestGap,
	)
	// How much it helps depends on who else uses the machine, and is only reported.
	if alone.ByRequests != 0 || helped.ByRequests == 0 {
		t.Fatalf("requests did not help: alone %+v, helped %+v", alone, helped)
	}
}

// TestAllocatesTheContext: where no sample is due, a task that may run at once costs the context that it runs with, and nothing
// else.
func TestAllocatesTheContext(t *testing.T) {
	w := mustNew(t, Config{Interval: 10 * time.Second})
	fn := func(context.Context) (int, error) { return 1, nil }
	ctx := t.Context()
	if n := testing.AllocsPerRun(200, func() { _, _ = Do(ctx, w, Task{}, fn) }); n != 1 {
		t.Errorf("Do: %v allocations, want the mark", n)
	}
	if size := unsafe.Sizeof(taskContext{}); size > 48 { // less on 32 bits
		t.Errorf("the mark has %d bytes, want 48 at most", size)
	}
	p := WithRequestID(WithPriority(ctx, decision.High), "a")
	if n := testing.AllocsPerRun(200, func() { PriorityFrom(p); RequestIDFrom(p); w.Holds(p) }); n != 0 {
		t.Errorf("PriorityFrom, RequestIDFrom and Holds: %v allocations", n)
	}
}

func TestBadInput(t *testing.T) {
	var invalid *InvalidError
	for _, interval := range []time.Duration{-1, time.Millisecond, time.Minute} {
		if w, err := New(Config{Interval: interval}); w != nil || !errors.As(err, &invalid) || !errors.Is(err, ErrInvalid) ||
			invalid.Field != "Config.Interval" {
			t.Errorf("Interval %v: %v", interval, err)
		}
	}
	for want, cfg := range map[string]Config{
		"warden: Config.Sampler is a nil *monitor.Sampler; ":       {Sampler: (*monitor.Sampler)(nil)},
		"warden: Config.Controller is a nil *control.Controller; ": {Controller: (*control.Controller)(nil)},
		"warden: Config.ApplyTo is a nil *bulkhead.Set; ":          {ApplyTo: (*bulkhead.Set)(nil)},
	} {
		if w, err := New(cfg); w != nil || !errors.As(err, &invalid) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s...", err, want)
		}
	}
	if _, err := New(Config{Limiter: limiter.Config{MaxQueue: -1}}); err == nil ||
		err.Error() != "warden: Config.Limiter.MaxQueue is -1; allowed: 1 or more, or 0 (the default, 1024)" {
		t.Errorf("MaxQueue -1: %v", err)
	}
	if _, err := New(Config{Limiter: limiter.Config{Recent: -1}}); !errors.Is(err, decision.ErrInvalid) {
		t.Errorf("Recent -1: %v", err)
	}
	if _, err := New(Config{Control: control.Config{Min: -1}}); !errors.Is(err, decision.ErrInvalid) {
		t.Errorf("Min -1: %v", err)
	}
	w, fn := mustNew(t, Config{}), func(context.Context) (int, error) { return 1, nil }
	var zero Warden
	call := func(_ int, err error) error { return err }
	_, _, nilContext := w.Acquire(nil, Task{}) //nolint:staticcheck // that is the point
	for i, err := range []error{
		call(Do[int](t.Context(), nil, Task{}, fn)),
		call(Do[int](t.Context(), w, Task{}, nil)),
		call(Do(t.Context(), &zero, Task{}, fn)),
		nilContext,
		w.Run(nil), //nolint:staticcheck // that is the point
	} {
		if !errors.As(err, &invalid) || invalid.Allowed == "" {
			t.Errorf("call %d: %v", i, err)
		}
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Run(done); err != nil {
		t.Errorf("Run with an ended ctx: %v", err)
	}
}

// TestAnInvalidCallHasNoEffect: not even the sample that is overdue is taken.
func TestAnInvalidCallHasNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := mustNew(t, Config{})
		time.Sleep(time.Second)
		if _, _, err := w.Acquire(nil, Task{}); !errors.Is(err, ErrInvalid) || w.Stats().Samples != 0 { //nolint:staticcheck // the point
			t.Errorf("%v, %+v", err, w.Stats())
		}
	})
}

// TestTheFirstDecisionIsTheControllers: what Control is configured to begin with rules before the first sample.
func TestTheFirstDecisionIsTheControllers(t *testing.T) {
	usual := decision.Default().TargetConcurrency
	for _, c := range []struct {
		cfg  Config
		want int
	}{
		{Config{}, usual},
		{Config{Control: control.Config{Initial: 3}}, 3},
		{Config{Control: control.Config{Initial: 1000}}, 1000},
		{Config{Control: control.Config{Min: usual + 5}}, usual + 5},
		{Config{Control: control.Config{Max: 4}}, 4},
		{Config{
			Control: control.Config{Initial: 3},
			Limiter: limiter.Config{Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 7}},
		}, 7},
	} {
		w := must(New(c.cfg))(t)
		if got := w.Limiter().Stats().Target; got != c.want {
			t.Errorf("%+v begins with %d, want %d", c.cfg.Control, got, c.want)
		}
	}
}

// hanging is a sampler that has not come back from its first sample, until it is let go.
type hanging chan struct{}

func (h hanging) Sample() monitor.Sample {
	<-h
	return monitor.Sample{At: time.Now()}
}

// TestWhoNeverDecidesIsStale: a warden whose sampler or controller hangs or panics from the start is asked for work, and says so
// once its first decision has held for long enough, whoever takes the samples; the work goes on. One that decides never does,
// however late it is asked.
func TestWhoNeverDecidesIsStale(t *testing.T) {
	broken := func() Config {
		p := &parts{broken: "controller"}
		return p.config()
	}
	for name, c := range map[string]struct {
		cfg  func(hang hanging) Config
		held time.Duration
	}{
		"a sampler of its own": {func(h hanging) Config { return Config{Sampler: h} }, time.Second},
		"a sampler and a controller of its own": {func(h hanging) Config {
			return Config{Sampler: h, Controller: steady{}}
		}, time.Second},
		"a controller that panics": {func(hanging) Config { return broken() }, time.Second},
		"a valid time of its own": {func(h hanging) Config {
			return Config{Sampler: h, Control: control.Config{ValidFor: 3 * time.Second, Initial: 3}}
		}, 3 * time.Second},
		"a long interval": {func(h hanging) Config { return Config{Sampler: h, Interval: 5 * time.Second} }, 20 * time.Second},
	} {
		for _, run := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				hang := make(hanging)
				w := mustNew(t, c.cfg(hang))
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				if run {
					all.Go(func() { _ = w.Run(ctx) })
				}
				first := w.Limiter().Stats().Target
				for at := time.Duration(0); at <= c.held; at += 100 * time.Millisecond {
					all.Go(func() { use(t, w) }) // one of them hangs where Run does not
					synctest.Wait()
					if got := w.Limiter().Stats().DecisionState; got != decision.Initial {
						t.Fatalf("Q13: %s, Run %v: %v after %v", name, run, got, at)
					}
					time.Sleep(100 * time.Millisecond)
				}
				use(t, w)
				if got := w.Limiter().Stats(); got.DecisionState != decision.Stale || got.Target != first {
					t.Errorf(
						"Q13: %s, Run %v: %v with a target of %d after %v, want stale and %d",
						name, run, got.DecisionState, got.Target, c.held, first,
					)
				}
				cancel()
				close(hang)
				all.Wait()
			})
		}
	}
	for _, run := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := mustNew(t, Config{Sampler: &samples{{}}})
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			defer all.Wait()
			defer cancel()
			if run {
				all.Go(func() { _ = w.Run(ctx) })
			} else {
				time.Sleep(time.Hour) // nobody asks
			}
			for range 100 {
				use(t, w)
				if got := w.Limiter().Stats().DecisionState; got == decision.Stale {
					t.Fatalf("Q13: Run %v: a healthy warden is %v to whoever asks", run, got)
				}
				time.Sleep(33 * time.Millisecond)
			}
		})
	}
}

// must is for what cannot fail here: x := must(f())(t).
func must[T any](v T, err error) func(fataler) T {
	return func(t fataler) T {
		t.Helper()
		noError(t, err)
		return v
	}
}

func noError(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type fataler interface {
	Helper()
	Fatal(args ...any)
}

// A Run that was forgotten shows in the log, once; neither one that was called nor one that has ended does.
func TestAForgottenRunIsLoggedOnce(t *testing.T) {
	before, out, flags := slog.Default(), log.Writer(), log.Flags() // SetDefault changes package log as well
	defer func() {
		slog.SetDefault(before)
		log.SetOutput(out)
		log.SetFlags(flags)
	}()
	for name, want := range map[string]int{"forgotten": 1, "called": 0, "ended": 0} {
		var logged strings.Builder
		slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
		synctest.Test(t, func(t *testing.T) {
			w := mustNew(t, Config{Limiter: limiter.Config{Name: "http"}})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				if name != "forgotten" {
					_ = w.Run(ctx)
				}
			}()
			if name == "ended" {
				synctest.Wait()
				cancel()
			}
			for range 60 {
				if p, err := w.TryAcquire(Task{}); err == nil {
					p.Release()
				}
				if logged.Len() > 0 && time.Since(w.epoch) < 10*time.Second {
					t.Errorf("%s: logged after %s", name, time.Since(w.epoch))
				}
				time.Sleep(time.Second)
			}
			cancel()
			<-done
		})
		if n := strings.Count(logged.String(), "without Run"); n != want ||
			n > 0 && !strings.Contains(logged.String(), "warden=http") {
			t.Errorf("%s: logged %d times, want %d: %s", name, n, want, logged.String())
		}
	}
}

type jam struct{}

func (jam) Sample() monitor.Sample {
	return monitor.Sample{
		At: time.Now(), Gap: 100 * time.Millisecond, Utilization: monitor.Reading{Value: 1, OK: true},
		Lag: monitor.Lag{P50: time.Second, P90: time.Second, P99: time.Second, Count: 100},
	}
}

// C20: the processors of a gateway lower no limit of work that runs elsewhere.
func TestRemote(t *testing.T) {
	for _, remote := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := mustNew(t, Config{Sampler: jam{}, Remote: remote})
			ctx, stop := context.WithCancel(t.Context())
			go func() { _ = w.Run(ctx) }()
			time.Sleep(5 * time.Second)
			stop()
			synctest.Wait()
			if limit := w.Limiter().Stats().Target; (limit < 16) == remote {
				t.Errorf("C20: the limit is %d with Remote: %v", limit, remote)
			}
		})
	}
}
