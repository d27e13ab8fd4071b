// SPDX-License-Identifier: Apache-2.0

// Fair by work (B8): who gets the slots of a compartment whose tenants want more of them than there are.

package bulkhead

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// A customer is a tenant with a number of callers, each of which calls again when it has been answered, after a while.
type customer struct {
	key     string
	callers int
	takes   time.Duration
	thinks  time.Duration
	comes   time.Duration // at first
}

// spent is the slot time in seconds that each customer gets of the slots of one compartment within d, in virtual time.
func spent(t *testing.T, slots int, cfg CompartmentConfig, all []customer, d time.Duration) []float64 {
	used := make([]atomic.Int64, len(all))
	synctest.Test(t, func(t *testing.T) {
		cfg.Name, cfg.Guaranteed, cfg.MaxQueue = "a", slots, 100
		s := mustNew(t, Config{Total: slots, Compartments: []CompartmentConfig{cfg}})
		ctx, cancel := context.WithTimeout(context.Background(), d)
		defer cancel()
		end := time.Now().Add(d)
		var callers sync.WaitGroup
		for i, one := range all {
			c := s.Compartment("a").Tenant(one.key)
			for range one.callers {
				callers.Go(func() {
					time.Sleep(one.comes)
					for ctx.Err() == nil {
						_, _ = Do(ctx, c, func(context.Context) (int, error) {
							used[i].Add(int64(min(one.takes, time.Until(end)))) // the rest comes after d
							time.Sleep(one.takes)
							return 0, nil
						})
						time.Sleep(one.thinks)
					}
				})
			}
		}
		callers.Wait()
	})
	seconds := make([]float64, len(all))
	for i := range used {
		seconds[i] = time.Duration(used[i].Load()).Seconds()
	}
	return seconds
}

// TestLightTenantsKeepTheirHalf: half of the tenants send calls of 10 ms, half of 400 ms.
func TestLightTenantsKeepTheirHalf(t *testing.T) {
	const always = 100 * time.Microsecond
	for _, c := range []struct {
		slots, tenants int
		heavyCallers   int
		heavyThinks    time.Duration
		d              time.Duration
		least          float64
	}{
		{2, 8, 5, always, 200 * time.Second, 0.45},
		{4, 8, 5, always, 200 * time.Second, 0.45},
		{8, 8, 5, always, 100 * time.Second, 0.45},
		{32, 8, 5, always, 50 * time.Second, 0.4}, // five callers for four slots: while one thinks, a slot goes to a long call
		{2, 1000, 5, always, 700 * time.Second, 0.4},
		{4, 1000, 5, always, 350 * time.Second, 0.4},
		{8, 1000, 5, always, 175 * time.Second, 0.4},
		{32, 1000, 5, always, 45 * time.Second, 0.4},
		{2, 8, 1, always, 200 * time.Second, 0.45}, // each call is a return
		{2, 8, 1, 10 * time.Millisecond, 200 * time.Second, 0.45},
	} {
		var all []customer
		for i := range c.tenants {
			one := customer{key: fmt.Sprint(i), callers: 5, takes: 10 * time.Millisecond, thinks: always}
			if i%2 == 1 {
				one.callers, one.takes, one.thinks = c.heavyCallers, 400*time.Millisecond, c.heavyThinks
			}
			all = append(all, one)
		}
		used := spent(t, c.slots, CompartmentConfig{Tenants: TenantsConfig{Max: c.slots}}, all, c.d)
		light, sum := 0.0, 0.0
		for i, u := range used {
			sum += u
			if i%2 == 0 {
				light += u
			}
		}
		t.Logf("%d slots, %d tenants: %.3f", c.slots, c.tenants, light/sum)
		if light/sum < c.least {
			t.Errorf("B8: %+v: those with short calls have %.3f of the slot time", c, light/sum)
		}
	}
}

// Tenants that always wait get slot time by weight. By how much they differ does not grow with time: at most by a call of each
// for each slot, and one (Jin, Chase, Kaur 2004).
func TestPropertySlotTimeByWeight(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		slots := rapid.IntRange(1, 6).Draw(rt, "slots")
		weights := map[string]int{}
		var all []customer
		for i := range rapid.IntRange(2, 8).Draw(rt, "tenants") {
			key := fmt.Sprint(i)
			weights[key] = rapid.SampledFrom([]int{1, 1, 1, 2, 3, 5}).Draw(rt, "weight")
			takes := time.Duration(rapid.IntRange(5, 100).Draw(rt, "takes")) * time.Millisecond
			all = append(all, customer{key: key, callers: 2 * slots, takes: takes})
		}
		tenants := TenantsConfig{Max: slots, Weight: func(key string) int { return weights[key] }}
		used := spent(t, slots, CompartmentConfig{Tenants: tenants}, all, 20*time.Second)
		for i, a := range all {
			for j, b := range all[:i] {
				wa, wb := float64(weights[a.key]), float64(weights[b.key])
				differ, most := math.Abs(used[i]/wa-used[j]/wb), float64(slots+1)*(a.takes.Seconds()/wa+b.takes.Seconds()/wb)
				if differ > most {
					rt.Fatalf("B8: %d slots: %+v of weight %g used %.2f s, %+v of weight %g %.2f s: per weight %.2f s apart, want %.2f s at most",
						slots, a, wa, used[i], b, wb, used[j], differ, most)
				}
			}
		}
	})
}

// TestWhoReturnsHasSavedNothing: a tenant that was away for an hour shares the slot with one that had it all the time.
func TestWhoReturnsHasSavedNothing(t *testing.T) {
	const calls = 100 * time.Millisecond
	used := spent(t, 1, CompartmentConfig{Tenants: TenantsConfig{Max: 1}}, []customer{
		{key: "stays", callers: 5, takes: calls}, {key: "returns", callers: 5, takes: calls, comes: time.Hour},
	}, time.Hour+10*time.Second)
	if stays := used[0] - time.Hour.Seconds(); math.Abs(stays-used[1]) > 0.5 {
		t.Errorf("B8: in the ten seconds after one returned, the other had %.1f s of slot time, and it %.1f s", stays, used[1])
	}
}

// TestWhatATenantOwes: one has held both slots for ten minutes. Then it waits until each of three others has used as much,
// at most one Timeout, or a minute where there is none.
func TestWhatATenantOwes(t *testing.T) {
	for _, c := range []struct{ held, timeout, owed time.Duration }{
		{10 * time.Second, 0, 20 * time.Second}, {10 * time.Minute, 0, time.Minute},
		{10 * time.Minute, 4 * time.Second, 4 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := mustNew(t, Config{Total: 2, Compartments: []CompartmentConfig{{
				Name: "a", Guaranteed: 2, MaxQueue: 100, MaxWait: time.Hour, Timeout: c.timeout, Tenants: TenantsConfig{Max: 2},
			}}})
			a := s.Compartment("a")
			call := func(c *Compartment, d time.Duration) {
				_, _ = Do(context.Background(), c, func(context.Context) (int, error) { time.Sleep(d); return 0, nil })
			}
			for range 2 {
				go call(a.Tenant("hog"), c.held)
			}
			sleep(c.held - time.Second)
			var others sync.WaitGroup
			over := time.Now().Add(4 * time.Minute)
			for _, key := range []string{"x", "y", "z"} {
				for range 5 {
					others.Go(func() {
						for time.Now().Before(over) {
							call(a.Tenant(key), 100*time.Millisecond)
						}
					})
				}
			}
			sleep(2 * time.Second)
			began := time.Now()
			call(a.Tenant("hog"), 0)
			if waited, want := time.Since(began).Seconds()+1, c.owed.Seconds()*3/2; math.Abs(waited-want) > 1 {
				t.Errorf("B8: %v, Timeout %v: it waited for %.1f s, want %.1f s", c.held, c.timeout, waited, want)
			}
			others.Wait()
		})
	}
}

// TestACrowdIsFairToItself: of the keys that there is no room for, a noisy one fills the queue of few others.
func TestACrowdIsFairToItself(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		const keys, quiet = 64, 100
		_, a := single(t, CompartmentConfig{Guaranteed: 1, MaxQueue: quiet, Tenants: TenantsConfig{Max: 1, Keys: keys}})
		for i := range keys { // one runs, the others wait: there is no room
			w.send(a.Tenant(fmt.Sprint(i)), "known")
		}
		w.fill(a.Tenant("noisy"), 2*quiet)
		rejected := 0
		for i := range quiet {
			if w.send(a.Tenant(fmt.Sprint("quiet ", i)), "quiet").ended.Load() {
				rejected++
			}
		}
		if rejected > quiet/5 { // one or two of a hundred share 64 queues with it
			t.Errorf("B8: %d of %d keys are rejected beside a noisy one", rejected, quiet)
		}
	})
}

// TestWeightsFromOutside: whatever the function returns or does, a weight is 1 to 1,000.
func TestWeightsFromOutside(t *testing.T) {
	weights := map[string]int{"0": 0, "less": -1, "least": math.MinInt, "2": 2, "1000": 1000, "more": 1001, "most": math.MaxInt}
	want := map[string]int{"0": 1, "less": 1, "least": 1, "2": 2, "1000": 1000, "more": 1000, "most": 1000, "panics": 1}
	var c *Compartment
	s, c := single(t, CompartmentConfig{Guaranteed: 1, MaxQueue: 1, Tenants: TenantsConfig{Max: 1, Weight: func(key string) int {
		if key == "panics" {
			panic(key)
		}
		if key != "of another" {
			c.Tenant("of another") // the set is not locked
		}
		return weights[key]
	}}})
	for key, w := range want {
		if got := c.Tenant(key).tenant.Weight; got != w {
			t.Errorf("B8: %s: a weight of %d, want %d", key, got, w)
		}
	}
	if n := s.Snapshot().ObserverPanics; n != 1 {
		t.Errorf("B8: %d panics", n)
	}
}
