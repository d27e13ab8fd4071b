// What is logged of a limiter, and how little.

package wardenslog_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenslog"
)

// TestAStormIsAFewLines: a hundred thousand rejections are one change, a bounded number of samples, and none of them is
// unaccounted for.
func TestAStormIsAFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, b := open(t, wardenslog.Config{PerSecond: 5})
		const storm = 100_000
		for range 4 { // 4 seconds of it
			for range storm / 4 {
				log.Observe(event(decision.Rejected, decision.PressureHigh))
			}
			synctest.Wait()
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second)
		log.Observe(event(decision.Executed, ""))
		synctest.Wait()

		lines := b.lines(t)
		if n := len(lines); n < 1+4+1 || n > 1+4*5+5+1 {
			t.Fatalf("%d lines", n)
		}
		told := uint64(0)
		for i, e := range lines[1 : len(lines)-1] {
			if e.Msg != "stopbank: rejected" || e.Level != "INFO" || e.Why.Reason != "pressure_high" || e.Why.Outcome != "rejected" || e.Why.Decision.Seq != 4 {
				t.Fatalf("line %d: %+v", i+1, e)
			}
			told += 1 + e.LeftOut
		}
		first, last := lines[0], lines[len(lines)-1]
		if first.Msg != "stopbank: rejecting started" || first.Level != "WARN" || first.Why.Limiter != "prices" {
			t.Errorf("first %+v", first)
		}
		if last.Msg != "stopbank: rejecting ended" || last.Limiter != "prices" || last.Lasted != 3*time.Second || last.Rejected["pressure_high"] != storm || len(last.Rejected) != 1 {
			t.Errorf("last %+v", last)
		}
		if told+last.LeftOut != storm-1 {
			t.Errorf("%d rejections told of and %d left out at the end, want %d", told, last.LeftOut, storm-1)
		}
		if s := log.Stats(); s.Written != uint64(len(lines)) || s.Dropped+s.Failed != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestEvery: of the rejections after the first, each third is a candidate.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, b := open(t, wardenslog.Config{Every: 3, PerSecond: 1000})
		for range 1 + 7 {
			log.Observe(event(decision.Rejected, decision.QueueOverflow))
			synctest.Wait()
		}
		var left []uint64
		for _, e := range b.lines(t)[1:] {
			left = append(left, e.LeftOut)
		}
		if !slices.Equal(left, []uint64{2, 2}) {
			t.Errorf("left out %v, want 2 and 2", left)
		}
	})
}

// TestChanges: what becomes a change, and what does not.
func TestChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, b := open(t, wardenslog.Config{Quiet: 2 * time.Second})
		const one, other = "prices", "stock"
		step := func(of string, e limiter.Event, want ...string) {
			t.Helper()
			before := len(b.lines(t))
			e.Limiter = of
			log.Observe(e)
			synctest.Wait()
			if got := messages(b.lines(t)[before:]); !slices.Equal(got, want) {
				t.Errorf("logged %q, want %q", got, want)
			}
		}
		decisionState := func(o decision.Outcome, s decision.DecisionState) limiter.Event {
			e := event(o, "")
			e.DecisionState = s
			return e
		}
		step(one, decisionState(decision.Started, decision.Initial))
		step(one, decisionState(decision.Started, decision.Applied))
		step(one, decisionState(decision.Started, decision.Stale), "control decisions are stale")
		step(one, decisionState(decision.Executed, decision.Applied)) // it started before
		step(one, decisionState(decision.Started, decision.Stale))
		step(one, decisionState(decision.Started, decision.Applied), "control decisions are fresh again")
		step(one, event(decision.OutcomeCanceled, decision.Canceled))

		step(one, event(decision.Rejected, decision.PriorityDrop), "rejecting started")
		step(other, event(decision.Rejected, decision.PriorityDrop), "rejecting started")
		step(one, event(decision.Rejected, decision.DeadlineExceeded), "rejected")
		time.Sleep(1999 * time.Millisecond)
		step(one, event(decision.Executed, ""))
		time.Sleep(time.Millisecond)
		step(one, event(decision.Started, ""), "rejecting ended")
		step(one, event(decision.Executed, ""))
		step(one, event(decision.Rejected, decision.Closed), "rejecting started")
		if got := b.lines(t)[5].Rejected; len(got) != 2 || got["priority_drop"] != 1 || got["deadline_exceeded"] != 1 {
			t.Errorf("rejected %v", got)
		}
		if e := b.lines(t)[0]; e.Limiter != "prices" || e.Decision.Seq != 4 {
			t.Errorf("stale: %+v", e)
		}
	})
}

// TestLevelsFollowPriorities: an episode begins at the level of what is rejected, rises with it, and ends quietly; the next begins anew.
func TestLevelsFollowPriorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, b := open(t, wardenslog.Config{Samples: slog.LevelDebug})
		var want []string
		step := func(p decision.Priority, lines ...string) {
			t.Helper()
			e := event(decision.Rejected, decision.QueueOverflow)
			e.Task.Priority = p
			log.Observe(e)
			synctest.Wait()
			want = append(want, lines...)
			var got []string
			for _, l := range b.lines(t) {
				got = append(got, l.Level+" "+l.Msg+" "+l.Priority)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("logged %q, want %q", got, want)
			}
		}
		const started, worse = " stopbank: rejecting started ", " stopbank: rejecting reached a higher priority "
		step(decision.Background, "INFO"+started+"background")
		step(-1)
		step(decision.Normal, "WARN"+worse+"normal")
		step(decision.High)
		step(decision.Background)
		step(decision.Critical, "ERROR"+worse+"critical")
		step(decision.Critical)
		step(decision.Normal)
		time.Sleep(10 * time.Second)
		log.Observe(event(decision.Started, ""))
		step(decision.Critical, "INFO stopbank: rejecting ended ", "ERROR"+started+"critical")
		time.Sleep(10 * time.Second)
		log.Observe(event(decision.Started, ""))
		step(decision.High, "INFO stopbank: rejecting ended ", "WARN"+started+"high")
	})
}

// TestFlappingIsBounded: a limiter that changes with every event is no way around the bound.
func TestFlappingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, b := open(t, wardenslog.Config{PerSecond: 3})
		for i := range 1000 {
			e := event(decision.Started, "")
			e.DecisionState = []decision.DecisionState{decision.Applied, decision.Stale}[i%2]
			log.Observe(e)
			synctest.Wait()
		}
		if n, s := len(b.lines(t)), log.Stats(); n != 3 || s.Dropped != 999-3 {
			t.Errorf("%d lines, %+v", n, s)
		}
	})
}

// TestLevels: a level is asked for when the line is written; what lies below the handler's is not made.
func TestLevels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var level slog.LevelVar
		level.Set(slog.LevelError)
		log, b := open(t, wardenslog.Config{Samples: &level})
		for range 2 {
			log.Observe(event(decision.Rejected, decision.Closed))
		}
		synctest.Wait()
		level.Set(slog.LevelDebug)
		log.Observe(event(decision.Rejected, decision.Closed))
		synctest.Wait()
		if lines := b.lines(t); len(lines) != 2 || lines[0].Level != "WARN" || lines[1].Level != "ERROR" || log.Stats().Written != 3 {
			t.Errorf("%+v", lines)
		}
	})
}

// TestHostileNames: a task's name may be what a client sent; it makes neither a second line nor a long one.
func TestHostileNames(t *testing.T) {
	log, b := open(t, wardenslog.Config{})
	for _, name := range []string{"a\n{\"msg\":\"forged\"}", "\xff\xfe", strings.Repeat("ü", 1<<20)} {
		e := event(decision.Rejected, decision.Closed)
		e.Task.Name = name
		log.Observe(e)
	}
	noError(t, log.Flush(t.Context()))
	if lines := b.lines(t); len(lines) != 3 || lines[0].Why.Task.Name != "a\n{\"msg\":\"forged\"}" || len(lines[2].Why.Task.Name) > 300 {
		t.Errorf("%d lines", len(lines))
	}
	if n := strings.Count(b.all(false), "\n"); n != 3 {
		t.Errorf("%d lines of text", n)
	}
}

func TestNewSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		field string
		cfg   wardenslog.Config
	}{
		{"Config.Every", wardenslog.Config{Every: -1}},
		{"Config.PerSecond", wardenslog.Config{PerSecond: -1}},
		{"Config.PerSecond", wardenslog.Config{PerSecond: 1001}},
		{"Config.Samples", wardenslog.Config{Samples: (*slog.LevelVar)(nil)}},
		{"Config.Quiet", wardenslog.Config{Quiet: -1}},
		{"Config.Quiet", wardenslog.Config{Quiet: 10}},
	} {
		_, err := wardenslog.New(c.cfg)
		var invalid *decision.InvalidError
		if !errors.Is(err, decision.ErrInvalid) || !errors.As(err, &invalid) || invalid.Field != "wardenslog."+c.field || !strings.Contains(err.Error(), c.field) {
			t.Errorf("%+v: %v", c.cfg, err)
		}
	}
	if _, err := wardenslog.New(wardenslog.Config{}); err != nil {
		t.Error(err)
	}
}

// TestFromManyGoroutines: for the race detector, and for the sum.
func TestFromManyGoroutines(t *testing.T) {
	log, b := open(t, wardenslog.Config{PerSecond: 20})
	l := must(limiter.New(limiter.Config{Observer: log, MaxQueue: 2, Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 2}}))(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 500 {
				if p, err := l.Acquire(context.Background(), limiter.Task{}); err == nil {
					runtime.Gosched()
					p.Release()
				}
			}
		})
	}
	all.Wait()
	noError(t, log.Flush(t.Context()))
	told := uint64(0)
	for _, e := range b.lines(t) {
		told += 1 + e.LeftOut
	}
	if rejected := l.Stats().Rejected; told > rejected || rejected > 0 && told == 0 {
		t.Errorf("%d rejections told of, %d happened", told, rejected)
	}
}

// TestValves: a change of the mode is logged, whatever else was in the same second, and so is what a dry run would have rejected.
func TestValves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, b := open(t, wardenslog.Config{PerSecond: 2, Quiet: 2 * time.Second})
		l := must(limiter.New(limiter.Config{Name: "prices", Initial: decision.ControlDecision{Seq: 1}, Observer: log}))(t)
		ask := func() {
			if p, err := l.TryAcquire(limiter.Task{}); err == nil {
				p.Release()
			}
			synctest.Wait()
		}
		ask() // a change of its own
		for range 2 {
			for _, mode := range []decision.Mode{decision.Bypass, decision.DryRun, decision.Enforce} {
				noError(t, l.SetMode(mode))
				synctest.Wait()
			}
		}
		noError(t, l.SetMode(decision.DryRun))
		time.Sleep(10 * time.Second)
		ask()
		time.Sleep(time.Second)
		ask()
		noError(t, l.SetMode(decision.Bypass))
		time.Sleep(2 * time.Second)
		ask()
		var got []string
		for _, e := range b.lines(t) {
			text := e.Level + " " + e.Msg
			if e.Mode != "" {
				text += " " + e.Mode
			}
			got = append(got, text)
		}
		valves := []string{"WARN stopbank: not enforcing bypass", "WARN stopbank: not enforcing dry_run", "INFO stopbank: enforcing enforce"}
		want := slices.Concat([]string{"WARN stopbank: rejecting started"}, valves, valves, []string{
			"WARN stopbank: not enforcing dry_run", "INFO stopbank: dry run: rejecting started", "INFO stopbank: rejecting ended", "INFO stopbank: dry run: rejected", "WARN stopbank: not enforcing bypass", "INFO stopbank: dry run: rejecting ended",
		})
		if !slices.Equal(got, want) {
			t.Errorf("logged %q\nwant   %q", got, want)
		}
	})
}
