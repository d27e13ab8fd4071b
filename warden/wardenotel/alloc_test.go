//go:build !race

// What metrics and spans cost a request.

package wardenotel_test

import (
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenotel"
)

func TestAllocations(t *testing.T) {
	mp, reader := provider(t)
	times := must(wardenotel.NewLimiterTimes(wardenotel.TimesConfig{Name: "observed", MeterProvider: mp}))(t)
	calls := must(wardenotel.NewCompartmentTimes(wardenotel.TimesConfig{Name: "set", MeterProvider: mp}))(t)
	plain, observed := newLimiter(t, 1, nil), newLimiter(t, 1, times)
	full := must(limiter.New(limiter.Config{Observer: times, Initial: decision.ControlDecision{Seq: 1}}))(t)
	must(wardenotel.New(wardenotel.Config{MeterProvider: mp, Limiters: map[string]*limiter.Limiter{"plain": plain, "observed": observed}}))(t)
	use := func(l *limiter.Limiter) func() {
		return func() {
			if p, err := l.TryAcquire(limiter.Task{}); err == nil {
				p.Release()
			}
		}
	}
	ctx := t.Context()
	unsampled, span := trace.NewTracerProvider(trace.WithSampler(trace.NeverSample())).Tracer("test").Start(ctx, "request")
	defer span.End()
	why := error(&decision.Rejection{Explanation: decision.Explanation{Reason: decision.Closed}})
	call := bulkhead.Event{Kind: bulkhead.Answered, Explanation: decision.Explanation{Limiter: "a", Outcome: bulkhead.Succeeded}, Took: time.Millisecond}
	for _, c := range []struct {
		name string
		most float64
		run  func()
	}{
		{"with metrics alone", 0, use(plain)},
		{"with histograms", 2, use(observed)},
		{"rejected, with histograms", 2, use(full)},
		{"a call in a compartment", 2, func() { calls.Observe(call) }},
		{"a rejection without a span", 0, func() { _ = wardenotel.RecordRejection(ctx, why) }},
		{"a rejection on a span that is not recorded", 0, func() { _ = wardenotel.RecordRejection(unsampled, why) }},
	} {
		for range 100 {
			c.run()
		}
		collect(t, reader)
		if got := testing.AllocsPerRun(1000, c.run); got > c.most {
			t.Errorf("%s: %g allocations, want %g at most", c.name, got, c.most)
		}
	}
}
