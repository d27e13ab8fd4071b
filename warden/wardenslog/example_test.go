// SPDX-License-Identifier: Apache-2.0

// A limiter that logs.

package wardenslog_test

import (
	"context"
	"log/slog"
	"os"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenslog"
)

func ExampleNew() {
	text := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "priority" || len(groups) > 0 && a.Key != "name" && a.Key != "seq" {
			return slog.Attr{} // too long for an example
		}
		return a
	}})
	log := wardenslog.New(slog.New(text))
	l, _ := limiter.New(limiter.Config{
		Name: "prices", Observer: log.Limiter(),
		Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 0},
	})
	for range 2 {
		_, _ = l.TryAcquire(limiter.Task{Name: "quote"})
	}
	_ = log.Flush(context.Background())
	// Output:
	// level=WARN msg="stopbank: rejecting started" limiter=prices reason=pressure_high why.task.name=quote why.decision.seq=1
	// level=INFO msg="stopbank: rejected" limiter=prices reason=pressure_high why.task.name=quote why.decision.seq=1 left_out=0
}

// The modes of compartments are logged, among other changes.
func ExampleLogger_Bulkhead() {
	text := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	log := wardenslog.New(slog.New(text))
	set, err := bulkhead.New(bulkhead.Config{Total: 1, Observer: log.Bulkhead(), Compartments: []bulkhead.CompartmentConfig{
		{Name: "reports", Guaranteed: 1, Mode: decision.DryRun},
	}})
	if err != nil {
		panic(err)
	}
	plan := set.Plan()
	plan.Compartments[0].Mode = decision.Enforce
	_, _ = set.Resize(plan)
	_ = log.Flush(context.Background())
	// Output:
	// level=WARN msg="stopbank: not enforcing" compartment=reports mode=dry_run
	// level=INFO msg="stopbank: compartments resized" revision=2 by=""
	// level=INFO msg="stopbank: enforcing" compartment=reports mode=enforce
}
