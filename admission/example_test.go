// One runnable example per way through the gate.

package admission_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/stopbank/stopbank/admission"
)

// A gate around a dependency: at most two calls at once, the third is told so at once.
func ExampleGate_TryAcquire() {
	gate, err := admission.New(admission.Config{Name: "inventory", Limit: 2})
	if err != nil {
		panic(err)
	}
	for i := range 3 {
		permit, err := gate.TryAcquire()
		if err != nil {
			fmt.Println(i, err)
			continue
		}
		defer permit.Release()
		fmt.Println(i, "admitted")
	}
	// Output:
	// 0 admitted
	// 1 admitted
	// 2 admission: gate "inventory" rejected: saturated (limit 2)
}

func ExampleGate_Do() {
	gate, _ := admission.New(admission.Config{Name: "inventory", Limit: 1})
	err := gate.Do(func() error {
		fmt.Println("in flight:", gate.InFlight())
		return gate.Do(func() error { return nil }) // the only slot is taken
	})
	fmt.Println(errors.Is(err, admission.ErrRejected), gate.InFlight())
	// Output:
	// in flight: 1
	// true 0
}

// A rejection names its gate and its limit, here while two calls hang in a dependency that has become slow.
func ExampleRejectedError() {
	gate, err := admission.New(admission.Config{Name: "payments", Limit: 2})
	if err != nil {
		panic(err)
	}
	for range gate.Limit() {
		if _, err := gate.TryAcquire(); err != nil {
			panic(err)
		}
	}
	pay := func() error { fmt.Println("paying"); return nil }
	err = gate.Do(pay) // does not wait and does not pay
	var rejected *admission.RejectedError
	if errors.As(err, &rejected) {
		fmt.Println("order saved, payment pending:", rejected.Gate, "is at its limit of", rejected.Limit)
	}
	// Output: order saved, payment pending: payments is at its limit of 2
}

func ExampleCall() {
	gate, _ := admission.New(admission.Config{Name: "prices", Limit: 10})
	price, err := admission.Call(gate, func() (int, error) { return 42, nil })
	fmt.Println(price, err)
	// Output: 42 <nil>
}

// In flight until the stage ends: the slot is held across goroutines.
func ExampleSubmit() {
	gate, _ := admission.New(admission.Config{Name: "reports", Limit: 1})
	finish := make(chan struct{})
	var report *admission.Promise[string]
	start := func() admission.Stage[string] {
		report = admission.Async(func() (string, error) {
			<-finish
			return "42 orders", nil
		})
		return report
	}
	_, err := admission.Submit(gate, start)
	fmt.Println("first:", err)
	_, err = admission.Submit(gate, start)
	fmt.Println("second:", err)

	close(finish)
	text, _ := report.Wait(context.Background())
	fmt.Println(text, gate.InFlight())
	// Output:
	// first: <nil>
	// second: admission: gate "reports" rejected: saturated (limit 1)
	// 42 orders 0
}

// A gate can only bound what has not started yet.
func ExampleSubmit_cold() {
	gate, _ := admission.New(admission.Config{Name: "pages", Limit: 1})
	gate.Close() // it rejects everything
	fetch := func() (string, error) {
		fmt.Println("fetching")
		return "page", nil
	}

	stage, err := admission.Submit(gate, func() admission.Stage[string] { return admission.Async(fetch) }) // cold
	fmt.Println(stage, err)

	running := admission.Async(fetch) // hot: has started already
	stage, err = admission.Submit(gate, func() admission.Stage[string] { return running })
	page, _ := running.Wait(context.Background())
	fmt.Println(stage, err, "and yet there is a", page)
	// Output:
	// <nil> admission: gate "pages" rejected: closed (limit 1)
	// fetching
	// <nil> admission: gate "pages" rejected: closed (limit 1) and yet there is a page
}

// Canceling a promise frees its slot while the work behind it may still run. To bound the work itself, cancel its
// context and let the promise end when the work does.
func ExampleSubmit_boundTheWork() {
	gate, _ := admission.New(admission.Config{Name: "reports", Limit: 1})
	ctx, cancel := context.WithCancel(context.Background())
	var report *admission.Promise[string]
	_, _ = admission.Submit(gate, func() admission.Stage[string] {
		report = admission.Async(func() (string, error) {
			<-ctx.Done() // the work notices, cleans up, and only then returns
			return "", ctx.Err()
		})
		return report
	})
	fmt.Println("in flight:", gate.InFlight())
	cancel()
	_, err := report.Wait(context.Background())
	fmt.Println(err, gate.InFlight())
	// Output:
	// in flight: 1
	// context canceled 0
}

// A stage for something that already has a completion callback.
func ExamplePromise() {
	gate, _ := admission.New(admission.Config{Name: "queue", Limit: 1})
	send := func(done func(error)) { done(nil) } // an API that calls back
	stage, err := admission.Submit(gate, func() admission.Stage[struct{}] {
		p := new(admission.Promise[struct{}])
		send(func(err error) {
			if err != nil {
				p.Reject(err)
				return
			}
			p.Resolve(struct{}{})
		})
		return p
	})
	fmt.Println(stage != nil, err, gate.InFlight())
	// Output: true <nil> 0
}

// Shutting down: reject what comes, wait for what is in flight.
func ExampleGate_Drain() {
	gate, _ := admission.New(admission.Config{Limit: 5})
	permit, _ := gate.TryAcquire()
	gate.Close()
	go permit.Release()
	fmt.Println(gate.Drain(context.Background()), gate.InFlight())
	_, err := gate.TryAcquire()
	fmt.Println(err)
	// Output:
	// <nil> 0
	// admission: gate "" rejected: closed (limit 5)
}

// An observer sees every decision, and how each admitted operation ended.
func ExampleObserver() {
	gate, _ := admission.New(admission.Config{Name: "mail", Limit: 1, Observer: printer{}})
	_ = gate.Do(func() error { return errors.New("no route") })
	// Output:
	// mail admitted
	// mail released: failed (no route)
}

type printer struct{}

func (printer) Observe(e admission.Event) {
	switch e.Kind {
	case admission.Released:
		fmt.Printf("%s %v: %v (%v)\n", e.Gate, e.Kind, e.Outcome, e.Err)
	default:
		fmt.Println(e.Gate, e.Kind)
	}
}
