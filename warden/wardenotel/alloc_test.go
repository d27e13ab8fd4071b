// SPDX-License-Identifier: Apache-2.0

//go:build !race

// What spans cost a request.

package wardenotel_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/wardenotel"
)

func TestAllocations(t *testing.T) {
	ctx := t.Context()
	unsampled, span := trace.NewTracerProvider(trace.WithSampler(trace.NeverSample())).Tracer("test").Start(ctx, "request")
	defer span.End()
	rejection := error(&decision.Rejection{Explanation: decision.Explanation{Reason: decision.Closed}})
	for name, ctx := range map[string]context.Context{"without a span": ctx, "on a span that is not recorded": unsampled} {
		if got := testing.AllocsPerRun(1000, func() { _ = wardenotel.RecordRejection(ctx, rejection) }); got > 0 {
			t.Errorf("%s: %g allocations", name, got)
		}
	}
}
