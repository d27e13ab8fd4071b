// Logs and metrics observe one limiter, and one set.

package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenprom"
	"github.com/stopbank/stopbank/warden/wardenslog"
)

func Example_observers() {
	var lines bytes.Buffer
	logger, instance, ctx := slog.New(slog.NewTextHandler(&lines, nil)), "api-1", context.Background()

	logs := wardenslog.New(logger.With("instance", instance))
	events, err := wardenprom.NewEvents("api")
	if err != nil {
		panic(err)
	}
	w, err := warden.New(warden.Config{Limiter: limiter.Config{
		Name: "api", Observer: limiter.Observers{events.Limiter(), logs.Limiter()},
	}})
	if err != nil {
		panic(err)
	}
	set, err := bulkhead.New(bulkhead.Config{
		Total: 1, Compartments: []bulkhead.CompartmentConfig{{Name: "reports", Guaranteed: 1}},
		Observer: bulkhead.Observers{events.Bulkhead(), logs.Bulkhead()},
	})
	if err != nil {
		panic(err)
	}

	w.Limiter().Close()
	_, _ = w.TryAcquire(warden.Task{})
	_, _, _ = set.Compartment("reports").Acquire(ctx)
	_, _, _ = set.Compartment("reports").Acquire(ctx) // the only slot is taken

	_ = logs.Flush(ctx) // before the program ends
	for line := range strings.Lines(lines.String()) {
		_, text, _ := strings.Cut(line, "msg=")
		text, _, _ = strings.Cut(text, " priority=")
		fmt.Println(text)
	}
	// Output:
	// "stopbank: rejecting started" instance=api-1 limiter=api reason=closed
	// "stopbank: rejecting started" instance=api-1 compartment=reports reason=queue_overflow
}
