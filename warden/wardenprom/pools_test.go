// SPDX-License-Identifier: Apache-2.0

// A pool that lies, beside an honest one, in a server under load: everybody goes on being served, and the liar is named.

package wardenprom_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
	"github.com/stopbank/stopbank/warden/wardenhttp"
	"github.com/stopbank/stopbank/warden/wardenprom"
)

func TestPoolThatLiesUnderLoad(t *testing.T) {
	waits := func(n float64) monitor.PoolStats {
		return monitor.PoolStats{Waiting: monitor.Reading{Value: n, OK: true}}
	}
	for name, c := range map[string]struct {
		lie     func(stop <-chan struct{}) monitor.PoolStats
		problem string
	}{
		"negative in use":  {func(<-chan struct{}) monitor.PoolStats { return monitor.PoolStats{InUse: -1, Max: 4} }, "invalid"},
		"negative most":    {func(<-chan struct{}) monitor.PoolStats { return monitor.PoolStats{InUse: 1, Max: -4} }, "invalid"},
		"more than most":   {func(<-chan struct{}) monitor.PoolStats { return monitor.PoolStats{InUse: 5, Max: 4} }, "invalid"},
		"negative waiting": {func(<-chan struct{}) monitor.PoolStats { return waits(-1) }, "invalid"},
		"NaN wait":         {func(<-chan struct{}) monitor.PoolStats { return waits(math.NaN()) }, "invalid"},
		"all wait":         {func(<-chan struct{}) monitor.PoolStats { return waits(math.Inf(1)) }, "invalid"},
		"panics":           {func(<-chan struct{}) monitor.PoolStats { panic("no") }, "panicked"},
		"ends":             {func(<-chan struct{}) monitor.PoolStats { runtime.Goexit(); return waits(1) }, "panicked"},
		"blocks":           {func(stop <-chan struct{}) monitor.PoolStats { <-stop; return waits(1) }, "blocked"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			defer running.Wait()
			defer cancel()

			tokens := make(chan struct{}, 4)
			var asked, at atomic.Int64 // the liar, in all and at a time
			w := must(warden.New(warden.Config{Interval: 10 * time.Millisecond, Pools: []monitor.Pool{
				{Name: "liar", Stats: func() monitor.PoolStats {
					asked.Add(1)
					if at.Add(1) > 1 {
						t.Error("M6: asked again before it has answered")
					}
					defer at.Add(-1)
					return c.lie(ctx.Done())
				}},
				{Name: "tokens", Stats: func() monitor.PoolStats { return monitor.PoolStats{InUse: len(tokens), Max: cap(tokens)} }},
			}}))(t)
			running.Go(func() { _ = w.Run(ctx) })
			protect := must(wardenhttp.New(w, wardenhttp.Config{}))(t)
			server := httptest.NewServer(protect.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				tokens <- struct{}{}
				time.Sleep(10 * time.Millisecond) // the work
				<-tokens
			})))
			defer server.Close()
			defer server.Client().CloseIdleConnections()
			defer running.Wait()
			defer cancel()
			var served atomic.Int64
			for range 16 {
				running.Go(func() {
					for ctx.Err() == nil {
						if resp, err := server.Client().Get(server.URL); err == nil {
							if resp.Body.Close(); resp.StatusCode == http.StatusOK {
								served.Add(1)
							}
						}
					}
				})
			}
			await := func(what string, done func() bool) {
				t.Helper()
				for hangs := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) { // no event says when
					if time.Now().After(hangs) {
						t.Fatalf("M6: %s: %+v", what, w.Latest())
					}
				}
			}

			await("first samples", func() bool { return w.Stats().Samples > 3 })
			before, samples := served.Load(), w.Stats().Samples
			await("100 served, 10 samples", func() bool { return served.Load() > before+100 && w.Stats().Samples > samples+10 })
			await("the honest pool is followed", func() bool {
				s := fmt.Sprint(w.Latest().Decision.Reasons)
				return strings.Contains(s, "pool_full: tokens: 4 of 4 in use") && strings.Contains(s, "pool_unreadable: liar: "+c.problem)
			})
			if n := asked.Load(); c.problem == "blocked" && n != 1 {
				t.Errorf("M6: asked %d times, and never answered", n)
			}
			p := scrape(t, registered(t, must(wardenprom.New(wardenprom.Config{Wardens: map[string]*warden.Warden{"shop": w}}))(t)))
			for metric, want := range map[string]float64{
				`stopbank_pool_unreadable{pool="liar",problem="` + c.problem + `",warden="shop"}`: 1,
				`stopbank_pool_max{pool="tokens",warden="shop"}`:                                  4,
				`stopbank_control_reason{reason="pool_unreadable",warden="shop"}`:                 1,
			} {
				if got, ok := p.values[metric]; !ok || got != want {
					t.Errorf("M6: %s is %v, want %v", metric, got, want)
				}
			}
			if strings.Contains(p.text, `stopbank_pool_in_use{pool="liar"`) ||
				strings.Contains(p.text, `stopbank_pool_waiting{pool="liar"`) {
				t.Errorf("M6: an invalid reading is exported:\n%s", p.text)
			}
		})
	}
	honest := monitor.Pool{Name: "tokens", Stats: func() monitor.PoolStats { return waits(0) }}
	var invalid *decision.InvalidError
	if _, err := warden.New(warden.Config{Pools: []monitor.Pool{honest, honest}}); !errors.As(err, &invalid) ||
		invalid.Field != "monitor.Pools[1].Name" || invalid.Value != `"tokens"` {
		t.Errorf("two pools of one name: %v", err)
	}
}
