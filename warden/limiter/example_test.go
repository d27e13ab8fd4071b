// SPDX-License-Identifier: Apache-2.0

// One runnable example per entry point.

package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
)

// A limiter for the two slots of a dependency: one more may wait, and the next one is told so.
func ExampleNew() {
	l, err := limiter.New(limiter.Config{
		Name:     "inventory",
		MaxQueue: 1,
		Initial:  decision.ControlDecision{Seq: 1, TargetConcurrency: 2},
	})
	if err != nil {
		panic(err)
	}
	for range 3 {
		permit, err := l.TryAcquire(limiter.Task{Name: "lookup"})
		if err != nil {
			fmt.Println(errors.Is(err, decision.ErrRejected))
			continue
		}
		defer permit.Release()
		fmt.Println(permit.Explain().Grant)
	}
	// Output:
	// slot_free
	// slot_free
	// true
}

func ExampleNew_invalid() {
	_, err := limiter.New(limiter.Config{MaxQueue: -1})
	fmt.Println(err)
	// Output: warden: limiter.Config.MaxQueue is -1; allowed: 0 (nobody waits) or more
}

func ExampleDo() {
	l, _ := limiter.New(limiter.Config{Name: "prices"})
	price, err := limiter.Do(context.Background(), l, limiter.Task{Name: "quote", Priority: decision.High},
		func(context.Context) (int, error) { return 42, nil })
	fmt.Println(price, err)
	// Output: 42 <nil>
}

// The task waits until the slot is free, its deadline comes, or the context ends.
func ExampleLimiter_Acquire() {
	l, _ := limiter.New(limiter.Config{Name: "reports", MaxQueue: 10,
		Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 1}})
	first, _ := l.Acquire(context.Background(), limiter.Task{Name: "first"})

	soon := limiter.Task{Name: "second", Deadline: time.Now().Add(time.Millisecond)}
	_, err := l.Acquire(context.Background(), soon)
	fmt.Println(errors.Is(err, context.DeadlineExceeded))

	first.Release()
	permit, err := l.Acquire(context.Background(), limiter.Task{Name: "third"})
	fmt.Println(permit.Release(), err)
	// Output:
	// true
	// true <nil>
}

func ExampleLimiter_TryAcquire() {
	l, _ := limiter.New(limiter.Config{Name: "reports", Initial: decision.ControlDecision{Seq: 1}}) // a target of 0
	_, err := l.TryAcquire(limiter.Task{Name: "nightly", Priority: decision.Background})
	var r *decision.Rejection
	if errors.As(err, &r) {
		fmt.Println(r.Reason, r.Task.Priority, r.Decision.TargetConcurrency)
	}
	// Output: pressure_high background 0
}

// Decisions come from control, or by hand.
func ExampleLimiter_Apply() {
	l, _ := limiter.New(limiter.Config{Name: "api"})
	l.Apply(decision.ControlDecision{
		Seq:               1,
		TargetConcurrency: 8,
		Reasons:           []decision.Reason{decision.NewReason("maintenance", "operator", 1, decision.Tighten)},
		ValidFor:          time.Minute,
		Stale:             &decision.ControlDecision{TargetConcurrency: 4},
	})
	permit, _ := l.TryAcquire(limiter.Task{Name: "call"})
	defer permit.Release()
	fmt.Println(permit.Explain())
	// Output:
	// started (slot_free): task "call", priority normal, waited 0s; "api": 1 in flight, 0 queued; decision 1 (applied): target 8, shed 0, maintenance: operator=1 (tighten)
}

// What was rejected lately, and why.
func ExampleLimiter_Recent() {
	l, _ := limiter.New(limiter.Config{Name: "api", Initial: decision.ControlDecision{Seq: 1}})
	for _, name := range []string{"a", "b"} {
		_, _ = l.TryAcquire(limiter.Task{Name: name})
	}
	for _, e := range l.Recent() {
		fmt.Println(e.Task.Name, e.Outcome, e.Reason)
	}
	// Output:
	// a rejected pressure_high
	// b rejected pressure_high
}

// A dry run lets everything start, and says what it would have rejected. Then it is enforced.
func ExampleLimiter_SetMode() {
	l, err := limiter.New(limiter.Config{Name: "inventory", Mode: decision.DryRun,
		Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 1}})
	if err != nil {
		panic(err)
	}
	for range 2 {
		p, err := l.TryAcquire(limiter.Task{})
		fmt.Printf("%v %q\n", err, p.Explain().WouldReject)
	}
	err = l.SetMode(decision.Enforce)
	fmt.Println(err, l.Stats().WouldReject, l.Stats().Running)
	// Output:
	// <nil> ""
	// <nil> "no_slot"
	// <nil> 1 2
}

// counter counts what happens.
type counter map[string]int

func (c counter) Observe(e limiter.Event) {
	key := string(e.Outcome)
	if e.Outcome == decision.Rejected {
		key += " " + string(e.Reason)
	}
	c[key]++
}

func ExampleObserver() {
	seen := counter{} // a real one would need a lock
	l, _ := limiter.New(limiter.Config{Observer: seen, Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 1}})
	permit, _ := l.TryAcquire(limiter.Task{})
	_, _ = l.TryAcquire(limiter.Task{})
	permit.Release()
	fmt.Println(seen)
	// Output: map[executed:1 rejected no_slot:1 started:1]
}
