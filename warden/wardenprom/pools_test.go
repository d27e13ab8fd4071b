// SPDX-License-Identifier: Apache-2.0

// Pools that lie, beside an honest one: a scrape names each of them, and has none of their numbers.

package wardenprom_test

import (
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardenprom"
)

func TestPoolsThatLie(t *testing.T) {
	waits := func(n float64) monitor.PoolStats {
		return monitor.PoolStats{Waiting: monitor.Reading{Value: n, OK: true}}
	}
	hang := make(chan struct{})
	defer close(hang)
	var asked atomic.Int64 // one that does not answer
	pools := []monitor.Pool{{Name: "tokens", Stats: func() monitor.PoolStats { return monitor.PoolStats{InUse: 3, Max: 4} }}}
	want := map[string]float64{
		`stopbank_pool_in_use{pool="tokens",warden="shop"}`:               3,
		`stopbank_pool_max{pool="tokens",warden="shop"}`:                  4,
		`stopbank_control_reason{reason="pool_unreadable",warden="shop"}`: 1,
	}
	for problem, lies := range map[string]map[string]func() monitor.PoolStats{
		"invalid": {
			"negative in use":  func() monitor.PoolStats { return monitor.PoolStats{InUse: -1, Max: 4} },
			"negative most":    func() monitor.PoolStats { return monitor.PoolStats{InUse: 1, Max: -4} },
			"more than most":   func() monitor.PoolStats { return monitor.PoolStats{InUse: 5, Max: 4} },
			"negative waiting": func() monitor.PoolStats { return waits(-1) },
			"NaN wait":         func() monitor.PoolStats { return waits(math.NaN()) },
			"all wait":         func() monitor.PoolStats { return waits(math.Inf(1)) },
		},
		"panicked": {
			"panics": func() monitor.PoolStats { panic("no") },
			"ends":   func() monitor.PoolStats { runtime.Goexit(); return waits(1) },
		},
		"blocked": {"blocks": func() monitor.PoolStats { asked.Add(1); <-hang; return waits(1) }},
	} {
		for name, lie := range lies {
			pools = append(pools, monitor.Pool{Name: name, Stats: lie})
			want[`stopbank_pool_unreadable{pool="`+name+`",problem="`+problem+`",warden="shop"}`] = 1
		}
	}
	w := must(warden.New(warden.Config{Pools: pools}))(t)
	r := registered(t, must(wardenprom.New(wardenprom.Config{Wardens: map[string]*warden.Warden{"shop": w}}))(t))
	sampled(w, 3)
	p := scrape(t, r)
	p.want(t, want)
	if n := strings.Count(p.text, "\nstopbank_pool_in_use{") + strings.Count(p.text, "\nstopbank_pool_waiting{"); n != 1 {
		t.Errorf("M6: an invalid reading is exported:\n%s", p.text)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("M6: a pool that never answered was asked %d times", n)
	}
}
