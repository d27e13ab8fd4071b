// SPDX-License-Identifier: Apache-2.0

// Rejections that a trace shows.

package wardenotel_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/wardenhttp"
	"github.com/stopbank/stopbank/warden/wardenotel"
)

// Behind a middleware, the span of a rejected request is found by its reason and by the ID in the answer to the client.
func ExampleRecordAnswer() {
	recorder := tracetest.NewSpanRecorder()
	tracer := trace.NewTracerProvider(trace.WithSpanProcessor(recorder)).Tracer("shop")

	w, _ := warden.New(warden.Config{})
	w.Limiter().Close()
	m, err := wardenhttp.New(w, wardenhttp.Config{Answer: wardenotel.RecordAnswer})
	if err != nil {
		panic(err)
	}
	// As otelhttp does, in front of the middleware.
	traced := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := tracer.Start(r.Context(), "checkout")
		defer span.End()
		m.Handler(http.NotFoundHandler()).ServeHTTP(w, r.WithContext(ctx))
	})

	rec, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/checkout", http.NoBody)
	req.Header.Set("X-Request-Id", "4bf92f3577b34da6")
	traced.ServeHTTP(rec, req)
	fmt.Println(rec.Body)
	for _, a := range recorder.Ended()[0].Attributes() {
		fmt.Println(a.Key, a.Value.String())
	}
	// Output:
	// {"title":"Service Unavailable","status":503,"reason":"closed","decision":1,"request_id":"4bf92f3577b34da6"}
	//
	// stopbank.reason closed
	// error.type closed
	// stopbank.decision.number 1
	// stopbank.request_id 4bf92f3577b34da6
}

// The code that acquires the slot records why there was none.
func ExampleRecordRejection() {
	recorder := tracetest.NewSpanRecorder()
	tracer := trace.NewTracerProvider(trace.WithSpanProcessor(recorder)).Tracer("shop")
	ctx, span := tracer.Start(context.Background(), "checkout")

	w, _ := warden.New(warden.Config{})
	w.Limiter().Close()
	_, _, err := w.Acquire(ctx, warden.Task{Name: "checkout"})
	err = wardenotel.RecordRejection(ctx, err)
	span.End()

	event := recorder.Ended()[0].Events()[0]
	fmt.Println(errors.Is(err, warden.ErrRejected), event.Name, event.Attributes[0].Value.AsString())
	// Output: true stopbank.rejected closed
}
