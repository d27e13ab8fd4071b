// One runnable example per entry point.

package warden_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// The whole stack, all defaults: measure, judge, limit.
func ExampleDo() {
	w, err := warden.New(warden.Config{})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go w.Run(ctx)

	v, err := warden.Do(ctx, w, warden.Task{Name: "greet", Priority: warden.High}, func(context.Context) (string, error) {
		return "hello", nil
	})
	fmt.Println(v, err)
	// Output: hello <nil>
}

// Around an HTTP handler: a refusal says why, to the operator and, in as many words as are good for them, to the client.
func ExampleWarden_Acquire() {
	w, _ := warden.New(warden.Config{})
	handler := func(rw http.ResponseWriter, r *http.Request) {
		permit, err := w.Acquire(r.Context(), warden.Task{Name: r.URL.Path, Deadline: time.Now().Add(time.Second)})
		var why *warden.Rejection
		if errors.As(err, &why) {
			rw.Header().Set("Retry-After", fmt.Sprint(max(1, int(why.RetryAfter.Seconds()))))
			http.Error(rw, why.Reason.String(), http.StatusServiceUnavailable)
			return
		}
		defer permit.Release()
		fmt.Fprintln(rw, "done")
	}
	fmt.Println(handler != nil, w.Limiter().Stats().Running)
	// Output: true 0
}

// A controller of one's own: here one that never changes its mind.
func ExampleConfig_controller() {
	w, _ := warden.New(warden.Config{
		Controller: constant{},
		Limiter:    limiter.Config{Initial: constant{}.Step(monitor.Sample{})},
	})
	permit, _ := w.TryAcquire(warden.Task{})
	_, err := w.TryAcquire(warden.Task{})
	permit.Release()
	var why *warden.Rejection
	fmt.Println(errors.As(err, &why), why.Reason, why.Decision.TargetConcurrency)
	// Output: true queue_overflow 1
}

type constant struct{}

func (constant) Step(s monitor.Sample) decision.ControlDecision {
	return decision.ControlDecision{Seq: 1, At: s.At, TargetConcurrency: 1}
}
