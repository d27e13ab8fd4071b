// SPDX-License-Identifier: Apache-2.0

// Rejections as span events, with attributes to search spans by.

package wardenotel

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
)

// eventRejected is the name of the event that [RecordRejection] adds.
const eventRejected = "stopbank.rejected"

// RecordRejection adds an event to the span of ctx if err is a rejection by a limiter or a compartment, a timeout of a
// compartment or a reentry, sets its attributes stopbank.reason, stopbank.decision.number and stopbank.request_id, as far as
// err has them, so that the span can be found by them, and error.type, whose value is the reason too, and returns err:
//
//	ctx, permit, err := w.Acquire(ctx, task)
//	if err != nil {
//		return wardenotel.RecordRejection(ctx, err)
//	}
//
// The event of a rejection has stopbank.reason, the limiter, the task, the queue wait, the load, and the decision in force with
// its reasons. The span's status is unchanged: the caller decides whether a rejection is an error. With wardenhttp, use
// [RecordAnswer]:
//
//	Answer: wardenotel.RecordAnswer,
//
// It does not block, and costs one check if the span is not recorded. A panic of the span is recovered.
func RecordRejection(ctx context.Context, err error) error {
	if err != nil {
		record(trace.SpanFromContext(ctx), err)
	}
	return err
}

// RecordAnswer is [RecordRejection] as a wardenhttp.Config.Answer. It returns false, which leaves the answer to the middleware.
func RecordAnswer(_ http.ResponseWriter, r *http.Request, err error) bool {
	_ = RecordRejection(r.Context(), err)
	return false
}

func record(span trace.Span, err error) {
	defer func() { _ = recover() }() // a failure to record err leaves it unchanged
	if !span.IsRecording() {
		return
	}
	attrs := explain(err)
	if attrs == nil {
		return
	}
	span.AddEvent(eventRejected, trace.WithAttributes(attrs...))
	for _, a := range attrs {
		switch a.Key {
		case reasonKey:
			span.SetAttributes(a, errorKey.String(a.Value.AsString()))
		case decisionKey, requestKey:
			span.SetAttributes(a)
		}
	}
}

const (
	limiterKey attribute.Key = "stopbank.limiter.name"

	// By OpenTelemetry's semantic conventions: the class of error that an operation ended with.
	errorKey attribute.Key = "error.type"

	// Attributes to find spans by.
	reasonKey   attribute.Key = "stopbank.reason"
	decisionKey attribute.Key = "stopbank.decision.number"
	requestKey  attribute.Key = "stopbank.request_id"
)

// explain returns the attributes of a rejection; nil: err is none.
func explain(err error) []attribute.KeyValue {
	var rejection *decision.Rejection
	var timeout *bulkhead.TimeoutError
	var reentry *decision.ReentryError
	switch {
	case errors.As(err, &rejection): // before its cause, which may be a TimeoutError
		return append([]attribute.KeyValue{reasonKey.String(string(rejection.Reason))}, explained(rejection)...)
	case errors.As(err, &timeout):
		return request([]attribute.KeyValue{
			reasonKey.String(string(bulkhead.TimedOut)), attribute.String("stopbank.compartment.name", short(timeout.Compartment)),
			attribute.Float64("stopbank.timeout.duration", timeout.After.Seconds()),
		}, timeout.RequestID)
	case errors.As(err, &reentry):
		return []attribute.KeyValue{reasonKey.String(string(decision.Reentry)), limiterKey.String(short(reentry.Limiter))}
	}
	return nil
}

// request adds the id of the request, if it is known.
func request(attrs []attribute.KeyValue, id string) []attribute.KeyValue {
	if id != "" {
		attrs = append(attrs, requestKey.String(short(id)))
	}
	return attrs
}

// explained returns the attributes of an explanation but for its reason.
func explained(r *decision.Rejection) []attribute.KeyValue {
	e := r.Explanation
	attrs := []attribute.KeyValue{
		limiterKey.String(short(e.Limiter)),
		attribute.String("stopbank.task.name", short(e.Task.Name)),
		attribute.Int("stopbank.task.priority", int(e.Task.Priority)),
		attribute.Float64("stopbank.wait.duration", e.Waited.Seconds()),
		attribute.Int("stopbank.in_flight", e.InFlight),
		attribute.Int("stopbank.queued", e.QueueLen),
	}
	if r.RetryAfter > 0 {
		attrs = append(attrs, attribute.Float64("stopbank.retry_after", r.RetryAfter.Seconds()))
	}
	if e.ShedBelow > -128 {
		attrs = append(attrs, attribute.Int("stopbank.shed_below", int(e.ShedBelow)))
	}
	if d := e.Decision; d != nil {
		reasons := make([]string, len(d.Reasons))
		for i, r := range d.Reasons {
			reasons[i] = short(r.String())
		}
		attrs = append(attrs,
			decisionKey.Int64(int64(d.Seq)),
			attribute.String("stopbank.decision.state", string(e.DecisionState)),
			attribute.Int("stopbank.decision.target", d.TargetConcurrency),
			attribute.Float64("stopbank.decision.shed", d.ShedProbability),
			attribute.StringSlice("stopbank.decision.reasons", reasons),
		)
	}
	return request(attrs, e.Task.ID)
}

// short returns s as an attribute can have it: exporters reject invalid UTF-8.
func short(s string) string {
	const longest = 256
	if len(s) > longest {
		s = s[:longest]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
