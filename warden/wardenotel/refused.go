// A refusal as an event of the span of whoever was refused.

package wardenotel

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/limiter"
)

// EventRefused is the name of the event that [Refused] adds.
const EventRefused = "stopbank.refused"

// Refused adds an event to the span of ctx if err is a refusal of a limiter or a compartment, and returns err:
//
//	ctx, permit, err := w.Acquire(ctx, task)
//	if err != nil {
//		return wardenotel.Refused(ctx, err)
//	}
//
// The event has everything that the explanation has: stopbank.reason, who refused, the task, how long it waited, how full it was, and
// the decision that ruled, with its reasons. The span's status is left alone: whether a refusal is an error is for the
// caller to say. It does not block, and costs nothing but a look if the span is not recorded. A span that panics is contained.
func Refused(ctx context.Context, err error) error {
	if err != nil {
		tell(trace.SpanFromContext(ctx), err)
	}
	return err
}

func tell(span trace.Span, err error) {
	defer func() { _ = recover() }() // err stays what it is, whatever is told of it
	if !span.IsRecording() {
		return
	}
	if attrs := explain(err); attrs != nil {
		span.AddEvent(EventRefused, trace.WithAttributes(attrs...))
	}
}

// explain is what there is to say of a refusal; nil: err is none.
func explain(err error) []attribute.KeyValue {
	var rejection *limiter.Rejection
	var timeout *bulkhead.TimeoutError
	var open *bulkhead.BreakerOpenError
	var reentry *bulkhead.ReentryError
	reason := func(r string) attribute.KeyValue { return keyOf("reason").String(r) }
	compartment := func(name string) attribute.KeyValue { return keyOf("compartment").String(short(name)) }
	switch {
	case errors.As(err, &timeout):
		attrs := []attribute.KeyValue{
			reason(timeout.Reason()), compartment(timeout.Compartment),
			attribute.Float64("stopbank.timeout.duration", timeout.After.Seconds()),
		}
		if timeout.Rejection != nil {
			attrs = append(attrs, explained(timeout.Rejection)...)
		}
		return attrs
	case errors.As(err, &open):
		return []attribute.KeyValue{reason(limiter.BreakerOpen.String()), compartment(open.Compartment)}
	case errors.As(err, &reentry):
		return []attribute.KeyValue{reason(limiter.Reentry.String()), keyOf("limiter").String(short(reentry.Limiter))}
	case errors.As(err, &rejection):
		return append([]attribute.KeyValue{reason(rejection.Reason.String())}, explained(rejection)...)
	}
	return nil
}

// explained is an explanation but for its reason.
func explained(r *limiter.Rejection) []attribute.KeyValue {
	e := r.Explain()
	attrs := []attribute.KeyValue{
		keyOf("limiter").String(short(e.Limiter)),
		attribute.String("stopbank.task.name", short(e.Task.Name)),
		attribute.Int("stopbank.task.priority", int(e.Task.Priority)),
		attribute.Float64("stopbank.wait.duration", e.Waited.Seconds()),
		attribute.Int("stopbank.in_flight", e.InFlight),
		attribute.Int("stopbank.queued", e.QueueLen),
	}
	if r.RetryAfter > 0 {
		attrs = append(attrs, attribute.Float64("stopbank.retry_after", r.RetryAfter.Seconds()))
	}
	if e.Cut > -128 {
		attrs = append(attrs, attribute.Int("stopbank.cut", int(e.Cut)))
	}
	if d := e.Decision; d != nil {
		reasons := make([]string, len(d.Reasons))
		for i, r := range d.Reasons {
			reasons[i] = short(r.String())
		}
		attrs = append(attrs,
			attribute.Int64("stopbank.decision.number", int64(d.Seq)),
			attribute.String("stopbank.decision.standing", e.Standing.String()),
			attribute.Int("stopbank.decision.target", d.TargetConcurrency),
			attribute.Float64("stopbank.decision.shed", d.ShedProbability),
			attribute.StringSlice("stopbank.decision.reasons", reasons),
		)
	}
	return attrs
}

// short is s as an attribute can have it: exporters refuse what is not valid UTF-8.
func short(s string) string {
	const longest = 256
	if len(s) > longest {
		s = s[:longest]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
