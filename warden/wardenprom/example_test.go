// A service under a warden that Prometheus can scrape.

package wardenprom_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stopbank/stopbank/admission"
	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/wardenprom"
)

func ExampleNew() {
	times, err := wardenprom.NewLimiterTimes(wardenprom.TimesConfig{Name: "api"})
	if err != nil {
		panic(err)
	}
	w, err := warden.New(warden.Config{Limiter: limiter.Config{Observer: times}})
	if err != nil {
		panic(err)
	}
	metrics, err := wardenprom.New(wardenprom.Config{Wardens: map[string]*warden.Warden{"api": w}})
	if err != nil {
		panic(err)
	}
	registry := prometheus.NewRegistry()
	if err := wardenprom.Register(registry, metrics, times); err != nil {
		panic(err)
	}
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()

	_, _ = warden.Do(context.Background(), w, warden.Task{}, func(context.Context) (int, error) { return 1, nil })
	resp, err := http.Get(server.URL)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, `stopbank_limiter_executed_total{limiter="api",priority="normal"}`) || strings.HasPrefix(line, "stopbank_limiter_execution_seconds_count") {
			fmt.Print(line)
		}
	}
	// Output:
	// stopbank_limiter_executed_total{limiter="api",priority="normal"} 1
	// stopbank_limiter_execution_seconds_count{limiter="api"} 1
}

// A gate of package admission beside the wardens.
func ExampleGate() {
	gate, err := admission.New(admission.Config{Limit: 8})
	if err != nil {
		panic(err)
	}
	metrics, err := wardenprom.New(wardenprom.Config{Gates: map[string]wardenprom.Gate{"login": {Stats: gate.Stats}}})
	fmt.Println(metrics != nil, err)
	// Output: true <nil>
}
