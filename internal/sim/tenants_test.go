// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"testing"
)

// flooded is w with a tenant that asks for 4 times what there is, and others who ask together for this much of it. These fractions of the
// flood's and the others' users are critical; the flood comes over so many routes. It is told or not who asks.
func flooded(w *World, others int, load, critical, flood float64, routes int, told bool) *World {
	k := w.Kinds[0]
	w.Peak *= (4 + load) / overload
	w.Kinds = nil
	add := func(n int, of, critical float64, name func(i int) string) {
		for i := range n {
			k.Of, k.Critical, k.Normal, k.Tenant = of/float64(n), critical, 1-critical, ""
			if told {
				k.Tenant = name(i)
			}
			w.Kinds = append(w.Kinds, k)
		}
	}
	add(routes, 4, flood, func(int) string { return "flood" })
	add(others, load, critical, func(i int) string { return fmt.Sprint("other ", i) })
	return w
}

const overload = 4.3 // of what there is, before the tenants share it

// One customer who asks for four times what there is goes unnoticed by the others, whatever bounds the service, whatever is critical, and over
// however many routes he comes (Q25, Q26).
func TestAFloodingTenant(t *testing.T) {
	computing := func() *World { return bound(2, 4*ms, overload) }
	slow := func() *World { return bound(2, 16*ms, overload) }
	connections := func() *World { return downstream(2, 10, overload) }
	for _, c := range []struct {
		name            string
		world           func() *World
		others          int
		load            float64
		critical, flood float64
		routes          int
		least, lost     float64 // of the others' answered at least, and of the goodput at most
	}{
		{"4 ms of computing", computing, 10, .3, 0, 0, 1, .98, .005},
		{"16 ms of computing", slow, 10, .3, 0, 0, 1, .98, .005},
		{"ten connections", connections, 10, .3, 0, 0, 1, .98, .03},
		{"over ten routes", computing, 10, .3, 0, 0, 10, .98, .005},
		{"a fifth of all is critical", computing, 10, .3, .2, .2, 1, .98, .005},
		{"a fifth of all is critical, connections", connections, 10, .3, .2, .2, 1, .9, .03},
		{"the flood is critical", computing, 10, .3, 0, 1, 1, .9, .01},
		{"the flood is critical, connections", connections, 10, .3, 0, 1, 1, .9, .03},
		{"a hundred others", computing, 100, .3, .2, .2, 1, .9, .01},
		{"others who fill half of it", computing, 10, .5, .2, .2, 1, .9, .01},
		{"others who fill nearly all of it", connections, 10, .9, .2, .2, 1, .9, .03},
	} {
		var shares, goods [2]float64
		for i, told := range []bool{false, true} {
			r := try(t, flooded(c.world(), c.others, c.load, c.critical, c.flood, c.routes, told), Ours, false)
			var answered, offered int
			for _, k := range r.Kinds[c.routes:] {
				answered, offered = answered+k.Good, offered+k.Offered
			}
			shares[i], goods[i] = float64(answered)/float64(offered), r.Goodput()
		}
		t.Logf("%-40s others answered %.3f, told %.3f; goodput %.3f, told %.3f", c.name, shares[0], shares[1], goods[0], goods[1])
		if shares[0] > .5 || shares[1] < c.least || goods[1] < goods[0]-c.lost {
			t.Errorf("Q25, Q26: %s: others answered %.3f, told %.3f; goodput %.3f, told %.3f", c.name, shares[0], shares[1], goods[0], goods[1])
		}
	}
}
