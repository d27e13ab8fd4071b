// SPDX-License-Identifier: Apache-2.0

// What is logged of a set of compartments.

package wardenslog_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
)

// TestASetIsLogged: with a real set, what its calls and its owner do.
func TestASetIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, b := open()
		set := must(bulkhead.New(bulkhead.Config{Total: 2, Observer: log.Bulkhead(), Compartments: []bulkhead.CompartmentConfig{
			{Name: "checkout", Guaranteed: 1, Timeout: time.Second}, {Name: "admin", Guaranteed: 1},
		}}))(t)
		// logged: these lines since the last time, each with its message and what else it has.
		logged := func(want ...[]string) {
			t.Helper()
			synctest.Wait()
			for _, line := range want {
				line[0] = `"msg":"stopbank: ` + line[0] + `"`
			}
			holds(t, b.all(true), want...)
		}
		checkout, ctx := set.Compartment("checkout"), t.Context()
		ok := func(context.Context) (int, error) { return 1, nil }
		_, _ = bulkhead.Do(ctx, checkout, ok)
		logged()

		// It runs beyond its timeout, rejects others meanwhile, and panics in the end.
		stuck := make(chan struct{})
		_, err := bulkhead.Do(ctx, checkout, func(context.Context) (int, error) { <-stuck; panic("on purpose") })
		if !errors.Is(err, bulkhead.ErrTimeout) {
			t.Fatal(err)
		}
		logged([]string{"timeout_running", `"compartment":"checkout"`, `"took":1000000000`, `"err":"bulkhead:`, `"left_out":0`,
			`"level":"INFO"`}, []string{"abandoned"})
		for range 3 {
			_, _ = bulkhead.DoOr(ctx, checkout, ok, func(context.Context, error) (int, error) { return 0, errors.New("no fallback") })
		}
		logged([]string{"rejecting started", `"reason":"queue_overflow"`, `"compartment":"checkout"`, `"level":"WARN"`,
			`"err":{"limiter":"checkout",`, `"bound":"own_slots","limit":1`},
			[]string{"fallback_failed"}, []string{"rejected"}, []string{"fallback_failed"}, []string{"rejected"}, []string{"fallback_failed"})
		close(stuck)
		logged([]string{"abandoned function panicked", "function panicked", "goroutine", `"level":"ERROR"`})

		// Another compartment has its own calm, and this one's comes.
		_, _ = bulkhead.Do(ctx, set.Compartment("admin"), ok)
		time.Sleep(10 * time.Second)
		_, _ = bulkhead.Do(ctx, set.Compartment("admin"), ok)
		logged()
		_, _ = bulkhead.Do(ctx, checkout, ok)
		logged([]string{"rejecting ended", `"rejected":{"queue_overflow":3}`, `"compartment":"checkout"`, `"level":"INFO"`})

		plan := set.Plan()
		plan.Total = 3
		must(set.Resize(plan))(t)
		logged([]string{"compartments resized", `"revision":2`, `"level":"INFO"`})

		for seq := range uint64(3) {
			set.Apply(decision.ControlDecision{Seq: seq + 1, TargetConcurrency: 2, ValidFor: time.Second})
		}
		logged()
		time.Sleep(time.Second + time.Millisecond)
		logged([]string{"control decisions are stale", `"decision":{"seq":3,`, `"level":"WARN"`})
		set.Apply(decision.ControlDecision{Seq: 4, TargetConcurrency: 2})
		logged([]string{"control decisions are fresh again", `"level":"INFO"`})
	})
}

// TestASetInAStorm: rejections by tenants whose keys are long are few and short lines.
func TestASetInAStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, b := open()
		o := log.Bulkhead()
		for i := range 10_000 {
			o.Observe(bulkhead.Event{Kind: bulkhead.Answered,
				Explanation: decision.Explanation{At: time.Now(), Limiter: "api", Outcome: decision.Rejected, Reason: "other",
					Task: decision.Task{Name: strings.Repeat("x\n\xff", 1000) + string(rune(i))}}, Err: errors.New(strings.Repeat("y", 10_000))})
		}
		o.Observe(bulkhead.Event{Kind: bulkhead.Answered, Explanation: decision.Explanation{
			At: time.Now(), Limiter: "api", Outcome: decision.Rejected, Reason: decision.Canceled,
		}})
		synctest.Wait()
		if got := messages(b.lines(t)); !slices.Equal(got,
			append([]string{"rejecting started"}, slices.Repeat([]string{"rejected"}, 10)...)) {
			t.Errorf("logged %q", got)
		}
		if n := len(b.all(false)); n > 11*4096 {
			t.Errorf("%d bytes", n)
		}
		time.Sleep(10 * time.Second)
		o.Observe(bulkhead.Event{Kind: bulkhead.Answered,
			Explanation: decision.Explanation{At: time.Now(), Limiter: "api", Outcome: bulkhead.Succeeded}})
		synctest.Wait()
		left := uint64(0)
		for _, e := range b.lines(t) {
			left += e.LeftOut
		}
		if last := b.lines(t)[11]; last.Msg != "stopbank: rejecting ended" || last.Rejected["other"] != 10_000 || left != 10_000-11 {
			t.Errorf("%d left out; %+v", left, last)
		}
	})
}

// TestASetInADryRun: its modes are logged, and what it would have rejected.
func TestASetInADryRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, b := open()
		set := must(bulkhead.New(bulkhead.Config{Total: 1, Observer: log.Bulkhead(), Compartments: []bulkhead.CompartmentConfig{
			{Name: "checkout", Guaranteed: 1, Mode: decision.DryRun},
		}}))(t)
		hold := func() bulkhead.Permit {
			_, p, err := set.Compartment("checkout").Acquire(t.Context())
			noError(t, err)
			return p
		}
		first := hold()
		for range 2 {
			hold().Release(nil)
			synctest.Wait()
		}
		time.Sleep(10 * time.Second)
		first.Release(nil)
		plan := set.Plan()
		plan.Compartments[0].Mode = decision.Enforce
		must(set.Resize(plan))(t)
		synctest.Wait()
		holds(t, b.all(false), []string{`"WARN","msg":"stopbank: not enforcing","compartment":"checkout","mode":"dry_run"`},
			[]string{`"INFO","msg":"stopbank: dry run: rejecting started","compartment":"checkout","would_reject":"queue_overflow"`},
			[]string{`"INFO","msg":"stopbank: dry run: rejected","compartment":"checkout","would_reject":"queue_overflow"`},
			[]string{`"msg":"stopbank: dry run: rejecting ended","compartment":"checkout"`}, []string{`"msg":"stopbank: compartments resized"`},
			[]string{`"INFO","msg":"stopbank: enforcing","compartment":"checkout","mode":"enforce"`})
	})
}

// TestAProposalIsLoggedOnce: when the second minute of rejections is over, with its reasons.
func TestAProposalIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, b := open()
		set := must(bulkhead.New(bulkhead.Config{Total: 9, Observer: log.Bulkhead(),
			Compartments: []bulkhead.CompartmentConfig{{Name: "api", Guaranteed: 1}, {Name: "batch", Guaranteed: 8}}}))(t)
		_, _, err := set.Compartment("api").Acquire(t.Context()) // the only slot, for ever
		noError(t, err)
		for range 400 {
			time.Sleep(time.Second)
			_, _, _ = set.Compartment("api").Acquire(t.Context())
		}
		synctest.Wait()
		var found []string
		for line := range strings.Lines(b.all(true)) {
			if strings.Contains(line, `"msg":"stopbank: plan proposed"`) {
				found = append(found, line)
			}
		}
		if len(found) != 1 || !strings.Contains(found[0], `"level":"INFO"`) ||
			!strings.Contains(found[0], `"revision":1,"reasons":"\"api\" rejected `) ||
			!strings.Contains(found[0], `\"batch\" used at most 0 of its 8 guaranteed slots: 1 fewer`) {
			t.Errorf("logged %q", found)
		}
	})
}
