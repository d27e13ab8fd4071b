// SPDX-License-Identifier: Apache-2.0

// Rejections on spans, as the SDK's own recorder sees them.

package wardenotel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenotel"
)

// recorded returns the attributes of the event that RecordRejection adds for err; nil: none. The span has those to search by,
// and no others.
func recorded(t *testing.T, err error) map[attribute.Key]attribute.Value {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")
	ctx, span := tracer.Start(t.Context(), "request")
	if got := wardenotel.RecordRejection(ctx, err); got != err {
		t.Errorf("%v was returned as %v", err, got)
	}
	span.End()
	events, found := recorder.Ended()[0].Events(), recorder.Ended()[0].Attributes()
	if recorder.Ended()[0].Status().Code != 0 {
		t.Error("the status of the span was changed")
	}
	if len(events) == 0 {
		if len(found) > 0 {
			t.Errorf("%v: attributes %v", err, found)
		}
		return nil
	}
	if len(events) > 1 || events[0].Name != "stopbank.rejected" {
		t.Errorf("events %v", events)
	}
	attrs := map[attribute.Key]attribute.Value{}
	for _, a := range events[0].Attributes {
		attrs[a.Key] = a.Value
		if s := a.Value.AsString(); !utf8.ValidString(s) || len(s) > 260 {
			t.Errorf("%s is %.300q", a.Key, s)
		}
		switch a.Key {
		case "stopbank.reason", "stopbank.decision.number", "stopbank.request_id":
			if !slices.Contains(found, a) {
				t.Errorf("the span has %v, and not %v", found, a)
			}
			found = slices.DeleteFunc(found, func(b attribute.KeyValue) bool { return b == a })
		}
	}
	if len(found) != 1 || found[0] != attribute.String("error.type", attrs["stopbank.reason"].AsString()) {
		t.Errorf("the span has %v as well, want error.type %s", found, attrs["stopbank.reason"].AsString())
	}
	return attrs
}

func TestARejectionIsAnEventWithItsExplanation(t *testing.T) {
	l := must(limiter.New(limiter.Config{Name: "prices", Initial: decision.ControlDecision{
		Seq: 9, TargetConcurrency: 1, Expected: time.Second, ShedProbability: .25,
		Reasons: []decision.Reason{decision.NewReason("queueing", "lag_seconds", .5, decision.Tighten)},
	}}))(t)
	must(l.TryAcquire(limiter.Task{}))(t)
	_, err := l.TryAcquire(limiter.Task{Name: "quote\xff" + strings.Repeat("x", 1000), ID: "4bf92f", Priority: decision.High})
	attrs := recorded(t, fmt.Errorf("no price: %w", err))
	for key, want := range map[attribute.Key]any{
		"stopbank.reason": "no_slot", "stopbank.limiter.name": "prices", "stopbank.task.priority": int64(64),
		"stopbank.wait.duration": 0.,
		"stopbank.request_id":    "4bf92f", "stopbank.in_flight": int64(1), "stopbank.queued": int64(0), "stopbank.retry_after": 1.,
		"stopbank.decision.number": int64(9),
		"stopbank.decision.state":  "initial", "stopbank.decision.target": int64(1), "stopbank.decision.shed": .25,
	} {
		if got := attrs[key].AsInterface(); got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	if r := attrs["stopbank.decision.reasons"].AsStringSlice(); len(r) != 1 || r[0] != "queueing: lag_seconds=0.5 (tighten)" {
		t.Errorf("reasons %q", r)
	}
	if n := attrs["stopbank.task.name"].AsString(); !strings.HasPrefix(n, "quote\uFFFDxxx") {
		t.Errorf("task %q", n)
	}
	if _, there := attrs["stopbank.shed_below"]; there {
		t.Error("there was no cut")
	}
	shed := &decision.Rejection{Explanation: decision.Explanation{Reason: decision.PressureHigh, ShedBelow: decision.High}}
	if attrs := recorded(t, shed); attrs["stopbank.shed_below"].AsInt64() != 64 ||
		attrs["stopbank.reason"].AsString() != "pressure_high" {
		t.Errorf("%v", attrs)
	}
}

func TestOtherRejections(t *testing.T) {
	rejected := func(reason decision.RejectionReason) error {
		return &decision.Rejection{Explanation: decision.Explanation{Limiter: "api", Reason: reason, Task: limiter.Task{ID: "4bf92f"},
			InFlight: 4}}
	}
	for reason, err := range map[string]error{
		"timeout_running": &bulkhead.TimeoutError{Compartment: "api", After: time.Second, RequestID: "4bf92f"},
		"timeout_queued":  rejected(bulkhead.TimeoutQueued),
		"breaker_open":    rejected(bulkhead.BreakerOpen),
		"reentry":         &decision.ReentryError{Limiter: "api"},
	} {
		attrs := recorded(t, err)
		name := "stopbank.limiter.name"
		if reason == "timeout_running" {
			name = "stopbank.compartment.name"
		}
		if attrs["stopbank.reason"].AsString() != reason || attrs[attribute.Key(name)].AsString() != "api" {
			t.Errorf("%s: %v", reason, attrs)
		}
		if id := attrs["stopbank.request_id"].AsString(); (id == "4bf92f") != (reason != "reentry") {
			t.Errorf("%s: request %q", reason, id)
		}
		if _, there := attrs["stopbank.in_flight"]; there != (reason == "timeout_queued" || reason == "breaker_open") {
			t.Errorf("%s: %v", reason, attrs)
		}
	}
	for _, err := range []error{nil, errors.New("of no interest"), context.Canceled} {
		if attrs := recorded(t, err); attrs != nil {
			t.Errorf("%v: %v", err, attrs)
		}
	}
}

// brokenSpan panics where it can.
type brokenSpan struct{ noop.Span }

func (brokenSpan) IsRecording() bool                     { return true }
func (brokenSpan) AddEvent(string, ...trace.EventOption) { panic("on purpose") }

func TestABrokenSpanIsContained(t *testing.T) {
	why := error(&decision.Rejection{Explanation: decision.Explanation{Reason: decision.Closed}})
	if err := wardenotel.RecordRejection(trace.ContextWithSpan(t.Context(), brokenSpan{}), why); err != why {
		t.Error(err)
	}
	if err := wardenotel.RecordRejection(t.Context(), why); err != why {
		t.Error(err)
	}
}
