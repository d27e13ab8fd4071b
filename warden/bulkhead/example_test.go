// SPDX-License-Identifier: Apache-2.0

// One runnable example per entry point.

package bulkhead_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
)

func shop() *bulkhead.Set {
	set, err := bulkhead.New(bulkhead.Config{
		Total: 100,
		Compartments: []bulkhead.CompartmentConfig{
			{Name: "checkout", Guaranteed: 50, Lendable: 20, Max: 70, MaxQueue: 100, MaxWait: time.Second, Timeout: 5 * time.Second,
				Criticality: decision.Critical},
			{Name: "products", Guaranteed: 30, Max: 40, MaxQueue: 50, MaxWait: 200 * time.Millisecond, Timeout: 3 * time.Second},
			{Name: "analytics", Guaranteed: 15, Lendable: 15, Max: 30, MaxQueue: 10, Timeout: 30 * time.Second,
				Criticality: decision.Background},
			{Name: "admin", Guaranteed: 5, MaxQueue: 5, Timeout: 10 * time.Second, Criticality: decision.High},
		},
	})
	if err != nil {
		panic(err)
	}
	return set
}

func ExampleDo() {
	set := shop()
	v, err := bulkhead.Do(context.Background(), set.Compartment("checkout"), func(ctx context.Context) (string, error) {
		return "paid", nil
	})
	fmt.Println(v, err)
	_, err = bulkhead.Do(context.Background(), set.Compartment("chekout"), func(ctx context.Context) (string, error) {
		return "", nil
	})
	fmt.Println(err)
	// Output:
	// paid <nil>
	// bulkhead: unknown compartment "chekout"; the set has "checkout", "products", "analytics", "admin"
}

// What is shown while the products' own compartment is full, or their database does not answer.
func ExampleDoOr() {
	set := shop()
	fromDatabase := func(context.Context) (string, error) { return "", errors.New("connection refused") }
	v, err := bulkhead.DoOr(context.Background(), set.Compartment("products"), fromDatabase,
		func(ctx context.Context, cause error) (string, error) {
			return "yesterday's prices", nil
		})
	fmt.Println(v, err, set.Snapshot().Compartments[1].Degraded)
	// Output: yesterday's prices <nil> 1
}

// A slow query takes what its compartment may have, and nothing of what the others keep.
func ExampleNew() {
	set := shop()
	for range 30 { // and none of them ends
		if _, _, err := set.Compartment("analytics").Acquire(context.Background()); err != nil {
			fmt.Println(err)
		}
	}
	_, err := bulkhead.Do(context.Background(), set.Compartment("checkout"), func(context.Context) (int, error) { return 0, nil })
	c := set.Snapshot().Compartments[2]
	fmt.Println(c.InFlight, c.Borrowed, err)
	// Output: 30 15 <nil>
}

// For an adapter that cannot wrap a function: the slot is held until the work is over, whenever that is.
func ExampleCompartment_Acquire() {
	set := shop()
	ctx, permit, err := set.Compartment("checkout").Acquire(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(ctx.Err(), set.Snapshot().InFlight)
	fmt.Println(permit.Release(nil), permit.Release(nil), set.Snapshot().InFlight)
	// Output:
	// <nil> 1
	// true false 0
}

// The plan is read, changed and put back; somebody else's change in between is not lost.
func ExampleSet_Resize() {
	set := shop()
	plan := set.Plan()
	plan.Compartments[0].Guaranteed, plan.Compartments[2].Guaranteed, plan.Compartments[2].Lendable = 60, 5, 5
	fmt.Println(set.Resize(plan))
	_, err := set.Resize(plan)
	fmt.Println(err, errors.Is(err, bulkhead.ErrConflict))
	// Output:
	// 2 <nil>
	// bulkhead: the plan has revision 1, but the set has revision 2; read Set.Plan again true
}

// Observe first: compartments without guarantees are one shared pool, measured by part. It is divided while it is in use.
func ExampleSet_Resize_observeFirst() {
	set, err := bulkhead.New(bulkhead.Config{Total: 10, Compartments: []bulkhead.CompartmentConfig{
		{Name: "checkout", Max: 10, MaxQueue: 1000},
		{Name: "analytics", Max: 10, MaxQueue: 1000},
	}})
	if err != nil {
		panic(err)
	}
	var held []bulkhead.Permit
	for range 10 { // one part may take the whole pool, as before
		_, permit, err := set.Compartment("analytics").Acquire(context.Background())
		if err != nil {
			panic(err)
		}
		held = append(held, permit)
	}
	plan := set.Plan()
	plan.Compartments[0].Guaranteed, plan.Compartments[1].Max = 6, 4
	_, err = set.Resize(plan)
	for _, permit := range held {
		permit.Release(nil)
	}
	fmt.Println(err, set.Compartment("checkout").Snapshot().Effective.Guaranteed,
		set.Compartment("analytics").Snapshot().Effective.Max)
	// Output: <nil> 6 4
}

// One compartment is bypassed: its calls start although there is no slot for them, and the others keep theirs.
func ExampleSet_Resize_bypass() {
	set := shop()
	plan := set.Plan()
	plan.Compartments[0].Mode = decision.Bypass
	_, err := set.Resize(plan)
	for range 100 {
		_, _, _ = set.Compartment("checkout").Acquire(context.Background())
	}
	s := set.Snapshot().Compartments[0]
	fmt.Println(err, s.Mode, s.InFlight, s.WithoutSlot)
	// Output: <nil> bypass 100 35
}

// What a decision leaves of a set: for each total, what a compartment is guaranteed, how much of that it lends, and the most it
// may have.
func ExampleSet_Apply() {
	set := shop()
	for i, total := range []int{100, 50, 20, 4, 2, 1} {
		set.Apply(decision.ControlDecision{Seq: uint64(i), TargetConcurrency: total})
		fmt.Printf("| %d |", total)
		for _, c := range set.Snapshot().Compartments {
			fmt.Printf(" %d / %d / %d |", c.Effective.Guaranteed, c.Effective.Lendable, c.Effective.Max)
		}
		fmt.Println()
	}
	// Output:
	// | 100 | 50 / 20 / 70 | 30 / 0 / 40 | 15 / 15 / 30 | 5 / 0 / 5 |
	// | 50 | 25 / 10 / 32 | 15 / 0 / 32 | 7 / 7 / 17 | 3 / 0 / 5 |
	// | 20 | 10 / 4 / 13 | 6 / 0 / 13 | 3 / 3 / 7 | 1 / 0 / 5 |
	// | 4 | 1 / 0 / 2 | 1 / 0 / 2 | 1 / 1 / 1 | 1 / 0 / 2 |
	// | 2 | 1 / 0 / 1 | 0 / 0 / 0 | 0 / 0 / 0 | 1 / 0 / 1 |
	// | 1 | 1 / 0 / 1 | 0 / 0 / 0 | 0 / 0 / 0 | 0 / 0 / 0 |
}

// Customers who pay get three times the slot time of the others while both wait.
func ExampleCompartment_Tenant() {
	pays := map[string]bool{"customer 17": true}
	weight := func(key string) int {
		if pays[key] {
			return 3
		}
		return 1
	}
	set, err := bulkhead.New(bulkhead.Config{Total: 20, Compartments: []bulkhead.CompartmentConfig{
		{Name: "api", Guaranteed: 20, MaxQueue: 5, MaxWait: time.Second,
			Tenants: bulkhead.TenantsConfig{Max: 10, Keys: 50_000, Weight: weight}},
	}})
	if err != nil {
		panic(err)
	}
	v, err := bulkhead.Do(context.Background(), set.Compartment("api").Tenant("customer 17"),
		func(context.Context) (int, error) { return 1, nil })
	fmt.Println(v, err, set.Snapshot().Compartments[0].Tenants.Keys)
	// Output: 1 <nil> 1
}

// Computation in compartments: as many slots as there are processors, so that a backlog of videos delays neither images nor
// requests that mostly wait.
func ExampleNew_computation() {
	processors := runtime.GOMAXPROCS(0)
	video := max(1, processors/2)
	image := max(1, processors-video)
	set, err := bulkhead.New(bulkhead.Config{Total: video + image + 100, Compartments: []bulkhead.CompartmentConfig{
		{Name: "video", Guaranteed: video, MaxQueue: 50},
		{Name: "image", Guaranteed: image, MaxQueue: 100},
		{Name: "api", Guaranteed: 100, MaxQueue: 500},
	}})
	if err != nil {
		panic(err)
	}
	for range video { // all encoders of videos are busy
		if _, _, err := set.Compartment("video").Acquire(context.Background()); err != nil {
			panic(err)
		}
	}
	for _, name := range []string{"image", "api"} {
		v, err := bulkhead.Do(context.Background(), set.Compartment(name), func(context.Context) (string, error) { return "done", nil })
		fmt.Println(name, v, err)
	}
	// Output:
	// image done <nil>
	// api done <nil>
}

// A breaker of your own that opens for good after three failures in a row. gobreaker.NewTwoStepCircuitBreaker of
// github.com/sony/gobreaker/v2 is a Breaker as it is; give it bulkhead.IsExcluded.
func ExampleBreaker() {
	set, err := bulkhead.New(bulkhead.Config{Total: 20, Compartments: []bulkhead.CompartmentConfig{
		{Name: "payments", Guaranteed: 10, MaxQueue: 10, Timeout: time.Second, Breaker: new(threeInARow)},
	}})
	if err != nil {
		panic(err)
	}
	payments := set.Compartment("payments")
	charge := func(context.Context) (string, error) { return "", errors.New("payment provider is down") }
	for range 4 {
		_, err := bulkhead.Do(context.Background(), payments, charge)
		fmt.Println(err)
	}
	receipt, err := bulkhead.DoOr(context.Background(), payments, charge, func(context.Context, error) (string, error) {
		return "order saved, payment pending", nil
	})
	fmt.Println(receipt, err)
	c := payments.Snapshot()
	fmt.Println("failed:", c.Outcomes["failed"], "rejected by the breaker:", c.Rejected["breaker_open"], "fallbacks:", c.Degraded)
	// Output:
	// payment provider is down
	// payment provider is down
	// payment provider is down
	// limiter: "payments": rejected: breaker_open
	// order saved, payment pending <nil>
	// failed: 3 rejected by the breaker: 2 fallbacks: 1
}

type threeInARow struct{ failures atomic.Int32 }

// IsOpen is asked before a call queues: nobody waits behind an open breaker.
func (b *threeInARow) IsOpen() bool { return b.failures.Load() >= 3 }

func (b *threeInARow) Allow() (done func(error), err error) {
	if b.IsOpen() {
		return nil, errors.New("open")
	}
	return func(err error) {
		switch {
		case err == nil:
			b.failures.Store(0)
		case !bulkhead.IsExcluded(err): // canceled calls and rejections say nothing about the provider
			b.failures.Add(1)
		}
	}, nil
}

func ExampleIsExcluded() {
	fmt.Println(bulkhead.IsExcluded(&decision.Rejection{}))
	fmt.Println(bulkhead.IsExcluded(&bulkhead.TimeoutError{}))
	// Output:
	// true
	// false
}

// The compartment answers for all its calls that fail.
func ExampleFallbackOf() {
	set, err := bulkhead.New(bulkhead.Config{Total: 20, Compartments: []bulkhead.CompartmentConfig{
		{Name: "recommendations", Guaranteed: 5, Timeout: 300 * time.Millisecond, Fallback: bulkhead.FallbackOf(
			func(context.Context, error) (string, error) { return "bestsellers", nil },
		)},
	}})
	if err != nil {
		panic(err)
	}
	c := set.Compartment("recommendations")
	fmt.Println(bulkhead.Do(context.Background(), c, func(context.Context) (string, error) { return "for you", nil }))
	fmt.Println(bulkhead.Do(context.Background(), c, func(context.Context) (string, error) { return "", errors.New("down") }))
	fmt.Println("degraded:", c.Snapshot().Degraded)
	// Output:
	// for you <nil>
	// bestsellers <nil>
	// degraded: 1
}

// A plan that the set proposes is applied by the program, if at all: here after the minutes that it takes to know what is
// lacking.
func ExampleProposal() {
	set, _ := bulkhead.New(bulkhead.Config{Total: 10, Compartments: []bulkhead.CompartmentConfig{
		{Name: "checkout", Guaranteed: 2, Criticality: decision.High}, {Name: "reports", Guaranteed: 8},
	}})
	if p := set.Snapshot().Proposal; p != nil {
		fmt.Println(p.Reasons)
		_, err := set.Resize(p.Plan)
		if errors.Is(err, bulkhead.ErrConflict) {
			fmt.Println("another change was faster")
		}
	}
	fmt.Println(set.Plan().Revision)
	// Output: 1
}
