// A service under a warden that OpenTelemetry can see.

package wardenotel_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenhttp"
	"github.com/stopbank/stopbank/warden/wardenotel"
)

func ExampleNew() {
	reader := sdk.NewManualReader() // a program has a periodic one, with an exporter
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	times, err := wardenotel.NewLimiterTimes(wardenotel.TimesConfig{Name: "api", MeterProvider: provider})
	if err != nil {
		panic(err)
	}
	w, err := warden.New(warden.Config{Limiter: limiter.Config{Observer: times}})
	if err != nil {
		panic(err)
	}
	metrics, err := wardenotel.New(wardenotel.Config{MeterProvider: provider, Wardens: map[string]*warden.Warden{"api": w}})
	if err != nil {
		panic(err)
	}
	defer metrics.Close()

	_, _ = warden.Do(context.Background(), w, warden.Task{}, func(context.Context) (int, error) { return 1, nil })
	var all metricdata.ResourceMetrics
	_ = reader.Collect(context.Background(), &all)
	for _, m := range all.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[float64]); ok && m.Name == "stopbank.limiter.executed" {
			for _, p := range sum.DataPoints {
				if p.Value > 0 {
					class, _ := p.Attributes.Value("stopbank.priority")
					fmt.Println(m.Name, class.AsString(), p.Value, m.Unit)
				}
			}
		}
	}
	// Output: stopbank.limiter.executed normal 1 {task}
}

// Behind a middleware, the span of a rejected request is found by its reason and by the id that the client was told.
func ExampleRejected_http() {
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
	// stopbank.decision.number 1
	// stopbank.request_id 4bf92f3577b34da6
}

// Whoever asked for a slot tells the span why there was none.
func ExampleRejected() {
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
