// SPDX-License-Identifier: Apache-2.0

// One runnable example per entry point.

package warden_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
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

	v, err := warden.Do(ctx, w, warden.Task{Name: "greet", Priority: decision.High}, func(context.Context) (string, error) {
		return "hello", nil
	})
	fmt.Println(v, err)
	// Output: hello <nil>
}

// Around an HTTP handler: a rejection says why, to the operator and, in as many words as are good for them, to the client.
func ExampleWarden_Acquire() {
	w, _ := warden.New(warden.Config{})
	handler := func(rw http.ResponseWriter, r *http.Request) {
		ctx, permit, err := w.Acquire(r.Context(), warden.Task{Name: r.URL.Path, Deadline: time.Now().Add(time.Second)})
		var why *warden.Rejection
		if errors.As(err, &why) {
			rw.Header().Set("Retry-After", fmt.Sprint(max(1, int(why.RetryAfter.Seconds()))))
			http.Error(rw, string(why.Reason), http.StatusServiceUnavailable)
			return
		}
		defer permit.Release()
		fmt.Fprintln(rw, "done with priority", warden.PriorityFrom(ctx))
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
	// Output: true no_slot 1
}

// A warden whose decisions bound the compartments of a set as well. It begins with as many slots as the set has, so nothing
// is taken away from anybody before there is a reason.
func ExampleConfig_also() {
	ruled := make(rulings, 1)
	set, err := bulkhead.New(bulkhead.Config{Total: 100, Observer: ruled, Compartments: []bulkhead.CompartmentConfig{
		{Name: "checkout", Guaranteed: 60, Max: 80, MaxQueue: 100, Criticality: decision.Critical},
		{Name: "reports", Guaranteed: 20, Max: 40, MaxQueue: 10, Criticality: decision.Background},
	}})
	if err != nil {
		panic(err)
	}
	w, err := warden.New(warden.Config{ApplyTo: set})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go w.Run(ctx)

	<-ruled
	fmt.Println("ruled by a decision:", set.Snapshot().Decision != nil)
	// Output: ruled by a decision: true
}

// rulings is told that a decision rules a set.
type rulings chan struct{}

func (r rulings) Observe(e bulkhead.Event) {
	if e.Kind == bulkhead.Applied {
		select {
		case r <- struct{}{}:
		default: // it has been told
		}
	}
}

type constant struct{}

func (constant) Step(s monitor.Sample) decision.ControlDecision {
	return decision.ControlDecision{Seq: 1, At: s.At, TargetConcurrency: 1}
}

// In an incident: less at the same time, and answers sooner or not at all.
func ExampleWarden_Adjust() {
	w, err := warden.New(warden.Config{})
	if err != nil {
		panic(err)
	}
	err = w.Adjust("anna, INC-4711", func(b *warden.Bounds) { b.Max, b.Timeout = 64, 500*time.Millisecond })
	bounds, by, _ := w.Bounds()
	fmt.Printf("%+v by %s, %v\n", bounds, by, err)

	err = w.Adjust("anna, INC-4711", func(b *warden.Bounds) { b.Min = 100 })
	fmt.Println(err)
	// Output:
	// {Min:1 Max:64 MaxQueue:1024 Timeout:500ms} by anna, INC-4711, <nil>
	// warden: control.Max is 64; allowed: Min (100) to 16777216
}
