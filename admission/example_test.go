// SPDX-License-Identifier: Apache-2.0

// One runnable example per way through the gate.

package admission_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/stopbank/stopbank/admission"
)

// A gate around a dependency: at most two calls at a time. A third is rejected without waiting.
func ExampleGate() {
	gate, err := admission.New(admission.Config{Name: "inventory", Limit: 2})
	if err != nil {
		panic(err)
	}
	stock := func() error { fmt.Println("asking the inventory"); return nil }
	switch err := gate.Do(stock); {
	case errors.Is(err, admission.ErrRejected):
		fmt.Println("too busy: nothing was asked") // answer 503
	case err != nil:
		fmt.Println("the inventory failed:", err)
	}
	fmt.Printf("%+v\n", gate.Stats())
	// Output:
	// asking the inventory
	// {Limit:2 InFlight:0 Admitted:1 Released:1 Rejected:0 RejectedClosed:0}
}

// A permit is for code that does not fit into one function.
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
		fmt.Println("in flight:", gate.Stats().InFlight)
		return gate.Do(func() error { return nil }) // the only slot is taken
	})
	fmt.Println(errors.Is(err, admission.ErrRejected), gate.Stats().InFlight)
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
	for range 2 {
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

// In flight until it calls back: the slot is held after Submit has returned.
func ExampleGate_Submit() {
	gate, _ := admission.New(admission.Config{Name: "reports", Limit: 1})
	finish, finished := make(chan struct{}), make(chan struct{})
	report := func(done func()) error {
		go func() {
			defer close(finished)
			defer done()
			<-finish // the work
		}()
		return nil
	}
	fmt.Println("first:", gate.Submit(report))
	fmt.Println("second:", gate.Submit(report))
	close(finish)
	<-finished
	fmt.Println("in flight:", gate.Stats().InFlight)
	// Output:
	// first: <nil>
	// second: admission: gate "reports" rejected: saturated (limit 1)
	// in flight: 0
}

// A client that calls back: what cannot be sent is not in flight.
func ExampleGate_Submit_callback() {
	gate, _ := admission.New(admission.Config{Name: "mail", Limit: 1})
	var delivered func() // by the client, on a goroutine of its own
	send := func(to string, callback func()) error {
		if to == "" {
			return errors.New("no recipient")
		}
		delivered = callback
		return nil
	}
	for _, to := range []string{"", "ann@example.com"} {
		err := gate.Submit(func(done func()) error { return send(to, done) })
		fmt.Println(err, gate.Stats().InFlight)
	}
	delivered()
	fmt.Println(gate.Stats().InFlight)
	// Output:
	// no recipient 0
	// <nil> 1
	// 0
}

// A gate can only bound work that has not started yet.
func ExampleGate_Submit_cold() {
	gate, _ := admission.New(admission.Config{Name: "pages", Limit: 1})
	gate.Close() // it rejects everything
	fetch := func(done func()) { fmt.Println("fetching"); done() }

	err := gate.Submit(func(done func()) error { fetch(done); return nil }) // cold
	fmt.Println(err)

	fetch(func() {}) // hot: it has run before the gate is asked
	err = gate.Submit(func(done func()) error { done(); return nil })
	fmt.Println(err)
	// Output:
	// admission: gate "pages" rejected: closed (limit 1)
	// fetching
	// admission: gate "pages" rejected: closed (limit 1)
}

// Canceled work is in flight until it has noticed, cleaned up and returned: done belongs to its end, not to the cancellation.
func ExampleGate_Submit_cancel() {
	gate, _ := admission.New(admission.Config{Name: "reports", Limit: 1})
	ctx, cancel := context.WithCancel(context.Background())
	_ = gate.Submit(func(done func()) error {
		go func() {
			defer done()
			<-ctx.Done() // the work notices, cleans up, and only then is it over
		}()
		return nil
	})
	fmt.Println("in flight:", gate.Stats().InFlight)
	cancel()
	fmt.Println(gate.Drain(context.Background()), gate.Stats().InFlight)
	// Output:
	// in flight: 1
	// <nil> 0
}

// Shutting down: reject what comes, wait for what is in flight.
func ExampleGate_Drain() {
	gate, _ := admission.New(admission.Config{Limit: 5})
	permit, _ := gate.TryAcquire()
	gate.Close()
	go permit.Release()
	fmt.Println(gate.Drain(context.Background()), gate.Stats().InFlight)
	_, err := gate.TryAcquire()
	fmt.Println(err)
	// Output:
	// <nil> 0
	// admission: gate "" rejected: closed (limit 5)
}
