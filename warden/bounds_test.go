// SPDX-License-Identifier: Apache-2.0

// Bounds that operators change while the warden runs.

package warden

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/control"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/monitor"
)

// Eight tasks run, and four are to: nothing is interrupted, and by the time they have ended no more than four run.
func TestAdjustReachesItByAttrition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		idle(t, Config{Control: control.Config{Initial: 8}}, func(ctx context.Context, w *Warden) {
			var all sync.WaitGroup
			for range 40 {
				all.Go(func() {
					_, err := Do(
						ctx, w, Task{Patient: true}, func(ctx context.Context) (int, error) { time.Sleep(time.Second); return 0, ctx.Err() },
					)
					if err != nil {
						t.Errorf("C18: %v", err)
					}
				})
			}
			synctest.Wait()
			if n := w.Limiter().Stats().Running; n != 8 {
				t.Fatalf("%d run, want 8", n)
			}
			if err := w.Adjust("anna", func(b *Bounds) { b.Max, b.MaxQueue = 4, 10 }); err != nil {
				t.Fatal(err)
			}
			time.Sleep(500 * time.Millisecond)
			if s := w.Limiter().Stats(); s.Running != 8 || s.Queued != 32 || s.Target > 4 {
				t.Errorf(
					"C18: %d run and %d wait under a limit of %d, want 8 and 32 as before, under 4",
					s.Running, s.Queued, s.Target,
				)
			}
			time.Sleep(time.Second)
			if s := w.Limiter().Stats(); s.Running > 4 || s.Running == 0 {
				t.Errorf("C18: %d run, want 1 to 4", s.Running)
			}
			all.Wait()
			b, by, at := w.Bounds()
			if b != (Bounds{Min: 1, Max: 4, MaxQueue: 10}) || by != "anna" || time.Since(at) <= time.Second {
				t.Errorf("bounds %+v, by %q, at %v", b, by, at)
			}
		})
	})
}

// Of changes at the same time none is lost.
func TestAdjustIsSerialized(t *testing.T) {
	w := mustNew(t, Config{})
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			change := func(b *Bounds) {
				b.MaxQueue++
				b.Max++
				for range 10 {
					runtime.Gosched() // the others come meanwhile
				}
			}
			if err := w.Adjust(fmt.Sprint("operator ", i), change); err != nil {
				t.Error(err)
			}
			if b, by, _ := w.Bounds(); b.MaxQueue-defaultQueue != b.Max-1<<16 || !strings.HasPrefix(by, "operator ") {
				t.Errorf("half of a change: %+v by %q", b, by)
			}
		})
	}
	all.Wait()
	if b, _, _ := w.Bounds(); b.MaxQueue != defaultQueue+50 {
		t.Errorf("%+v", b)
	}
}

// unbounded is a controller of somebody else.
type unbounded struct{}

func (unbounded) Step(monitor.Sample) decision.ControlDecision { return decision.Default() }

func TestAdjustBadInput(t *testing.T) {
	set, err := bulkhead.New(bulkhead.Config{Total: 8, Compartments: []bulkhead.CompartmentConfig{{Name: "a", Guaranteed: 8}}})
	if err != nil {
		t.Fatal(err)
	}
	plain, over, foreign := mustNew(t, Config{}), mustNew(t, Config{ApplyTo: set}), mustNew(t, Config{Controller: unbounded{}})
	nothing := func(*Bounds) {}
	for name, c := range map[string]struct {
		w      *Warden
		by     string
		change func(*Bounds)
	}{
		"nil warden":      {nil, "anna", nothing},
		"zero warden":     {new(Warden), "anna", nothing},
		"nobody":          {plain, "", nothing},
		"long name":       {plain, strings.Repeat("a", 129), nothing},
		"no text":         {plain, "\xff", nothing},
		"no change":       {plain, "anna", nil},
		"no queue":        {plain, "anna", func(b *Bounds) { b.MaxQueue = 0 }},
		"Min 0":           {plain, "anna", func(b *Bounds) { b.Min, b.MaxQueue = 0, 5 }},
		"Max below Min":   {plain, "anna", func(b *Bounds) { b.Min, b.Max, b.MaxQueue = 5, 4, 5 }},
		"no unit":         {plain, "anna", func(b *Bounds) { b.Timeout, b.MaxQueue = 500, 5 }},
		"before arrival":  {plain, "anna", func(b *Bounds) { b.Timeout = -time.Second }},
		"below the set":   {over, "anna", func(b *Bounds) { b.Max, b.MaxQueue = 7, 5 }},
		"another's limit": {foreign, "anna", func(b *Bounds) { b.Max = 7 }},
	} {
		var before Bounds
		if c.w != nil {
			before, _, _ = c.w.Bounds()
		}
		if err := c.w.Adjust(c.by, c.change); !errors.Is(err, ErrInvalid) && !errors.Is(err, decision.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if after, by, _ := c.w.Bounds(); after != before || by != "" {
			t.Errorf("%s: %+v, then %+v by %q", name, before, after, by)
		}
	}
	if err := foreign.Adjust("anna", func(b *Bounds) { b.MaxQueue = 7 }); err != nil {
		t.Error(err)
	}
}
