// Gate is the shortest use of the admission layer: two calls of a dependency at a time, the third is told at once.
package main

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/stopbank/stopbank/admission"
)

func main() {
	gate, err := admission.New(admission.Config{Name: "payments", Limit: 2})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	var calls sync.WaitGroup
	started, finish := make(chan struct{}), make(chan struct{})
	for range gate.Limit() { // the dependency has become slow, and two calls are stuck in it
		calls.Go(func() {
			err := gate.Do(func() error {
				started <- struct{}{}
				<-finish
				return nil
			})
			if err != nil {
				fmt.Println("first two:", err)
			}
		})
		<-started
	}

	pay := func() error { fmt.Println("paying"); return nil }
	err = gate.Do(pay) // does not wait and does not pay
	var rejected *admission.RejectedError
	if errors.As(err, &rejected) {
		fmt.Printf("third: rejected by %s at limit %d\n", rejected.Gate, rejected.Limit)
	}

	close(finish)
	calls.Wait()
	if err := gate.Do(pay); err == nil {
		fmt.Println("fourth: paid,", gate.InFlight(), "in flight")
	}
}
