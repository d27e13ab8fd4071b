// SPDX-License-Identifier: Apache-2.0

// Tenants (B8): fair shares, and as many of them as there is room for.

package bulkhead

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

func TestASpikeDoesNotRejectTheOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		s, c := single(t, CompartmentConfig{Guaranteed: 6, MaxQueue: 5, Tenants: TenantsConfig{Max: 6}})
		spike := w.fill(c.Tenant("loud"), 20) // 6 run, 5 wait, 9 are rejected
		quiet := []*job{w.send(c.Tenant("quiet"), "q"), w.send(c.Tenant("quiet"), "q")}
		late := w.send(c.Tenant("late"), "l")
		for _, j := range append(quiet, late) {
			if j.ended.Load() {
				t.Fatalf("B8: rejected: %v", j.err)
			}
		}
		w.let(spike[0])
		w.let(spike[1])
		if !quiet[0].runs() || !late.runs() {
			t.Error("B8: the first two slots are for the two that have none")
		}
		w.let(spike[2])
		if !quiet[1].runs() {
			t.Error("B8: the next is for the one that has one, not for the one that has three")
		}
		if sn := c.Snapshot(); sn.Rejected["queue_overflow"] != 9 || sn.Tenants.Active != 3 || sn.InFlight != 6 {
			t.Errorf("B8: %+v", sn)
		}
		rest(t, s, 6)
	})
}

func TestATenantHasItsOwnBound(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		s, c := single(t, CompartmentConfig{Guaranteed: 6, MaxQueue: 1, Tenants: TenantsConfig{Max: 2}})
		jobs := w.fill(c.Tenant("a"), 3)
		if c.Snapshot().InFlight != 2 || !jobs[2].waits() {
			t.Errorf("B8: %+v", c.Snapshot())
		}
		w.let(jobs[0])
		if !jobs[2].runs() {
			t.Error("B8: its own slot was lost")
		}
		key, ok := c.Tenant("a").TenantKey()
		same := c.Tenant("a")
		if _, not := c.TenantKey(); key != "a" || !ok || not || c.Tenant("a") != same {
			t.Error(key, ok)
		}
		rest(t, s, 2)
	})
}

func TestKeysAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		s, c := single(t, CompartmentConfig{Guaranteed: 6, MaxQueue: 1, Tenants: TenantsConfig{Max: 2, Keys: 3}})
		held := c.Tenant("held")
		w.send(held, "h")
		for i := range 10_000 { // invented keys push each other out
			if k := c.Tenant(fmt.Sprint("key ", i)); k == c {
				t.Fatal("B8: an idle tenant was not forgotten for a new one")
			}
		}
		if c.Tenant("held") != held {
			t.Error("B8: a tenant that is not idle was forgotten")
		}
		if tn := c.Snapshot().Tenants; tn.Keys != 3 || tn.Evicted != 9998 || tn.Overflow != 0 {
			t.Errorf("B8: %+v", tn)
		}
		w.send(c.Tenant("x"), "x")
		w.send(c.Tenant("y"), "y")
		shared := map[*Compartment]bool{}
		for i := range 10_000 {
			key := strings.Repeat("z", i/10)
			crowd := c.Tenant(key)
			if _, tenant := crowd.TenantKey(); tenant || c.Tenant(key) != crowd {
				t.Fatal("B8: a key that there is no room for has a tenant, or not always the same compartment")
			}
			shared[crowd] = true
		}
		if len(shared) != 3 || c.Snapshot().Tenants.Keys != 3 || c.Snapshot().Tenants.Overflow != 20_000 {
			t.Errorf("B8: %d compartments are shared by the keys that there is no room for", len(shared))
		}
		if j := w.send(c.Tenant("z"), "z"); !j.runs() {
			t.Error(j.err)
		}
		rest(t, s, 4)
	})
}

// TestAForgottenTenantIsFoundAgain holds on to a tenant for longer than the set does.
func TestAForgottenTenantIsFoundAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		s, c := single(t, CompartmentConfig{Guaranteed: 4, MaxQueue: 1, Tenants: TenantsConfig{Max: 1, Keys: 1}})
		old := c.Tenant("a")
		c.Tenant("b")
		w.send(c.Tenant("a"), "1")
		if j := w.send(old, "2"); !j.waits() {
			t.Error("B8: the tenant has twice its Max")
		}
		rest(t, s, 1)
	})
}

func TestAWaitDoesNotStayInMemory(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		s, c := single(t, CompartmentConfig{Guaranteed: 1, MaxQueue: 1, Tenants: TenantsConfig{Max: 1}})
		first := w.send(c.Tenant("a"), "a")
		for i := range 100 {
			j := w.send(c.Tenant(fmt.Sprint(i)), "j")
			j.cancel()
			synctest.Wait()
		}
		if got := c.Snapshot(); len(c.pool.waiting) != 0 || got.Tenants.Active != 1 || got.Tenants.Keys != 101 || got.Queued != 0 {
			t.Errorf("B8: %d have a turn, %+v", len(c.pool.waiting), got)
		}
		w.let(first)
		rest(t, s, 0)
		if n := len(s.Recent()); n != 100 {
			t.Errorf("B8: %d explanations", n)
		}
	})
}
