// One runnable example per entry point.

package bulkhead_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
)

func shop() *bulkhead.Set {
	set, err := bulkhead.New(bulkhead.Config{
		Total: 100,
		Compartments: []bulkhead.CompartmentConfig{
			{Name: "checkout", Guaranteed: 50, Lendable: 20, Max: 70, MaxQueue: 100, MaxWait: time.Second, Timeout: 5 * time.Second, Criticality: limiter.Critical},
			{Name: "products", Guaranteed: 30, Max: 40, MaxQueue: 50, MaxWait: 200 * time.Millisecond},
			{Name: "analytics", Guaranteed: 15, Lendable: 15, Max: 30, MaxQueue: 10, Timeout: 30 * time.Second, Criticality: limiter.Background},
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
	// bulkhead: unknown compartment "chekout"; the set has "checkout", "products", "analytics"
}

// What is shown while the products' own compartment is full, or their database does not answer.
func ExampleDoOr() {
	set := shop()
	fromDatabase := func(context.Context) (string, error) { return "", errors.New("connection rejectd") }
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

// One compartment is bypassed: its calls start although there is no slot for them, and the others keep theirs.
func ExampleSet_Resize_bypass() {
	set := shop()
	plan := set.Plan()
	plan.Compartments[0].Mode = limiter.Bypass
	_, err := set.Resize(plan)
	for range 100 {
		_, _, _ = set.Compartment("checkout").Acquire(context.Background())
	}
	s := set.Snapshot().Compartments[0]
	fmt.Println(err, s.Mode, s.InFlight, s.WithoutSlot)
	// Output: <nil> bypass 100 30
}

// A decision about the sum: the least critical give up their guarantees first.
func ExampleSet_Apply() {
	set := shop()
	set.Apply(decision.ControlDecision{Seq: 1, TargetConcurrency: 70})
	for _, c := range set.Snapshot().Compartments {
		fmt.Println(c.Name, c.EffectiveGuaranteed)
	}
	// Output:
	// checkout 50
	// products 20
	// analytics 0
}

func ExampleCompartment_Tenant() {
	set, err := bulkhead.New(bulkhead.Config{Total: 20, Compartments: []bulkhead.CompartmentConfig{
		{Name: "api", Guaranteed: 20, MaxQueue: 5, MaxWait: time.Second, Tenants: bulkhead.TenantsConfig{Max: 10, Keys: 50_000}},
	}})
	if err != nil {
		panic(err)
	}
	v, err := bulkhead.Do(context.Background(), set.Compartment("api").Tenant("customer 17"), func(context.Context) (int, error) { return 1, nil })
	fmt.Println(v, err, set.Snapshot().Compartments[0].Tenants.Keys)
	// Output: 1 <nil> 1
}

func ExampleIsExcluded() {
	fmt.Println(bulkhead.IsExcluded(&bulkhead.TimeoutError{Phase: bulkhead.Queued}))
	fmt.Println(bulkhead.IsExcluded(&bulkhead.TimeoutError{Phase: bulkhead.Running}))
	// Output:
	// true
	// false
}
