// SPDX-License-Identifier: Apache-2.0

// What is logged of a limiter, and how little.

package wardenslog_test

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
)

// TestAStormIsAFewLines: a hundred thousand rejections are one change, a bounded number of samples, and none of them is
// unaccounted for.
func TestAStormIsAFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, b := open()
		o := log.Limiter()
		const storm = 100_000
		for range 4 { // 4 seconds of it
			for range storm / 4 {
				o.Observe(event(decision.Rejected, decision.PressureHigh))
			}
			synctest.Wait()
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second)
		o.Observe(event(decision.Executed, ""))
		synctest.Wait()

		lines := b.lines(t)
		if n := len(lines); n < 1+4+1 || n > 1+4*10+1 {
			t.Fatalf("%d lines", n)
		}
		logged := uint64(0)
		for i, e := range lines[1 : len(lines)-1] {
			if e.Msg != "stopbank: rejected" || e.Level != "INFO" || e.Why.Reason != "pressure_high" || e.Why.Outcome != "rejected" ||
				e.Why.Decision.Seq != 4 {
				t.Fatalf("line %d: %+v", i+1, e)
			}
			logged += 1 + e.LeftOut
		}
		first, last := lines[0], lines[len(lines)-1]
		if first.Msg != "stopbank: rejecting started" || first.Level != "WARN" || first.Why.Limiter != "prices" {
			t.Errorf("first %+v", first)
		}
		if last.Msg != "stopbank: rejecting ended" || last.Limiter != "prices" || last.Lasted != 3*time.Second ||
			last.Rejected["pressure_high"] != storm || len(last.Rejected) != 1 {
			t.Errorf("last %+v", last)
		}
		if logged+last.LeftOut != storm-1 {
			t.Errorf("%d rejections logged and %d left out at the end, want %d", logged, last.LeftOut, storm-1)
		}
	})
}

// TestChanges: what becomes a change, and what does not.
func TestChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, b := open()
		one, other := log.Limiter(), log.Limiter()
		step := func(o limiter.Observer, e limiter.Event, want ...string) {
			t.Helper()
			before := len(b.lines(t))
			o.Observe(e)
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
		time.Sleep(10*time.Second - time.Millisecond)
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

// TestLevelsFollowPriorities: an episode begins at the level of what is rejected, rises with it, and ends quietly; the next
// begins anew.
func TestLevelsFollowPriorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, b := open()
		o := log.Limiter()
		var want []string
		step := func(p decision.Priority, lines ...string) {
			t.Helper()
			e := event(decision.Rejected, decision.QueueOverflow)
			e.Task.Priority = p
			o.Observe(e)
			synctest.Wait()
			want = append(want, lines...)
			var got []string
			for _, l := range b.lines(t) {
				if l.Msg != "stopbank: rejected" {
					got = append(got, l.Level+" "+l.Msg+" "+l.Priority)
				}
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
		o.Observe(event(decision.Started, ""))
		step(decision.Critical, "INFO stopbank: rejecting ended ", "ERROR"+started+"critical")
		time.Sleep(10 * time.Second)
		o.Observe(event(decision.Started, ""))
		step(decision.High, "INFO stopbank: rejecting ended ", "WARN"+started+"high")
	})
}

// TestHostileNames: a task's name may be what a client sent; it makes neither a second line nor a long one.
func TestHostileNames(t *testing.T) {
	log, b := open()
	o := log.Limiter()
	for _, name := range []string{"a\n{\"msg\":\"forged\"}", "\xff\xfe", strings.Repeat("ü", 1<<20)} {
		e := event(decision.Rejected, decision.Closed)
		e.Task.Name = name
		o.Observe(e)
	}
	noError(t, log.Flush(t.Context()))
	if lines := b.lines(t); len(lines) != 3 || lines[0].Why.Task.Name != "a\n{\"msg\":\"forged\"}" ||
		len(lines[2].Why.Task.Name) > 300 {
		t.Errorf("%d lines", len(lines))
	}
	if n := strings.Count(b.all(false), "\n"); n != 3 {
		t.Errorf("%d lines of text", n)
	}
}

// TestFromManyGoroutines: for the race detector, and for the sum.
func TestFromManyGoroutines(t *testing.T) {
	log, b := open()
	l := must(limiter.New(limiter.Config{Observer: log.Limiter(), MaxQueue: 2,
		Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 2}}))(t)
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
	logged := uint64(0)
	for _, e := range b.lines(t) {
		logged += 1 + e.LeftOut
	}
	if rejected := l.Stats().Rejected; logged > rejected || rejected > 0 && logged == 0 {
		t.Errorf("%d rejections logged, %d happened", logged, rejected)
	}
}

// TestValves: a change of the mode is logged, whatever else was in the same second, and so is what a dry run would have rejected.
func TestValves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, b := open()
		l := must(limiter.New(limiter.Config{Name: "prices", Initial: decision.ControlDecision{Seq: 1}, Observer: log.Limiter()}))(t)
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
		time.Sleep(10 * time.Second)
		ask()
		var got []string
		for _, e := range b.lines(t) {
			text := e.Level + " " + e.Msg
			if e.Mode != "" {
				text += " " + e.Mode
			}
			got = append(got, text)
		}
		valves := []string{"WARN stopbank: not enforcing bypass", "WARN stopbank: not enforcing dry_run",
			"INFO stopbank: enforcing enforce"}
		want := slices.Concat([]string{"WARN stopbank: rejecting started"}, valves, valves, []string{
			"WARN stopbank: not enforcing dry_run", "INFO stopbank: dry run: rejecting started", "INFO stopbank: rejecting ended",
			"INFO stopbank: dry run: rejected", "WARN stopbank: not enforcing bypass", "INFO stopbank: dry run: rejecting ended",
		})
		if !slices.Equal(got, want) {
			t.Errorf("logged %q\nwant   %q", got, want)
		}
	})
}
