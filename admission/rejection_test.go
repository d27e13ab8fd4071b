// SPDX-License-Identifier: Apache-2.0

// What a call costs, and what bad input, no gate and huge limits get.

package admission_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/stopbank/stopbank/admission"
)

// TestNothingAllocates covers the calls that promise it, and permits up to as many as were out before.
func TestNothingAllocates(t *testing.T) {
	for _, limit := range []int{1, 5, 100} {
		cfg := admission.Config{Limit: limit}
		open, full, shut := mustNew(t, cfg), mustNew(t, cfg), mustNew(t, cfg)
		for range limit {
			_, _ = full.TryAcquire()
		}
		shut.Close()
		fn := func() error { return nil }
		ps := make([]admission.Permit, limit)
		for name, f := range map[string]func(){
			"Do":                  func() { _ = open.Do(fn) },
			"Call":                func() { _, _ = admission.Call(open, func() (int, error) { return limit, nil }) },
			"TryAcquire":          func() { p, _ := open.TryAcquire(); p.Release() },
			"rejection":           func() { _, _ = full.TryAcquire() },
			"rejection by Do":     func() { _ = full.Do(fn) },
			"rejection, closed":   func() { _, _ = shut.TryAcquire() },
			"rejection by Submit": func() { _ = full.Submit(func(func()) error { return nil }) },
			"Stats":               func() { open.Stats(); full.Stats() },
			"a stale copy":        func() { p, _ := open.TryAcquire(); p.Release(); p.Release() },
			"all slots": func() {
				for i := range ps {
					ps[i], _ = open.TryAcquire()
				}
				for _, p := range ps {
					p.Release()
				}
			},
		} {
			if n := testing.AllocsPerRun(200, f); n != 0 {
				t.Errorf("A6: limit %d, %s: %v allocations", limit, name, n)
			}
		}
	}
}

func TestBadInput(t *testing.T) {
	var invalid *admission.InvalidError
	for _, limit := range []int{0, -1, math.MinInt} { // 0: forgotten, because a gate that rejects everything is a closed one
		g, err := admission.New(admission.Config{Limit: limit})
		if g != nil || !errors.Is(err, admission.ErrInvalid) || !errors.As(err, &invalid) ||
			invalid.Field != "Config.Limit" || invalid.Value != limit {
			t.Fatalf("New(Limit %d) = %v, %v", limit, g, err)
		}
		for _, part := range []string{"Config.Limit", fmt.Sprint(limit), "1 or more", "Close"} {
			if !strings.Contains(err.Error(), part) {
				t.Fatalf("%q does not say %q", err, part)
			}
		}
	}

	g := mustNew(t, admission.Config{Limit: 1})
	_, call := admission.Call[int](g, nil)
	for i, err := range []error{g.Do(nil), call, g.Submit(nil)} {
		if !errors.As(err, &invalid) || invalid.Allowed == "" {
			t.Errorf("nil function %d: %v", i, err)
		}
	}
	if s := g.Stats(); s.Admitted != 0 || s.Rejected != 0 {
		t.Fatalf("nonsense was counted: %+v", s)
	}
}

// TestNoGate: nothing runs behind a nil *Gate, and the zero Gate is one of limit 0.
func TestNoGate(t *testing.T) {
	ran := false
	do := (*admission.Gate)(nil).Do(func() error { ran = true; return nil })
	_, call := admission.Call(nil, func() (int, error) { ran = true; return 0, nil })
	submit := (*admission.Gate)(nil).Submit(func(func()) error { ran = true; return nil })
	for i, err := range []error{do, call, submit} {
		var invalid *admission.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "gate" || errors.Is(err, admission.ErrRejected) || ran {
			t.Errorf("nil gate, %d: %v, ran: %t", i, err, ran)
		}
	}
	var zero admission.Gate
	if _, err := zero.TryAcquire(); !errors.Is(err, admission.ErrRejected) {
		t.Fatal(err)
	}
	if err := zero.Drain(context.Background()); err != nil || zero.Stats().InFlight != 0 || zero.Stats().Limit != 0 {
		t.Fatal("the zero Gate is not an empty one")
	}
	zero.Close()
	var r *admission.RejectedError
	if err := zero.Do(func() error { return nil }); !errors.As(err, &r) || r.Reason != admission.Closed {
		t.Fatal(err)
	}
	if s := zero.Stats(); s.Rejected != 2 || s.RejectedClosed != 1 {
		t.Fatalf("%+v", s)
	}
}

// TestHugeLimits: a limit is a number, and costs nothing until slots are taken.
func TestHugeLimits(t *testing.T) {
	for _, limit := range []int{math.MaxInt32, math.MaxInt} {
		var before, after runtime.MemStats
		ps := make([]admission.Permit, 1000)
		runtime.ReadMemStats(&before)
		g := mustNew(t, admission.Config{Limit: limit})
		for i := range ps {
			var err error
			if ps[i], err = g.TryAcquire(); err != nil {
				t.Fatal(err)
			}
		}
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 64*1000 {
			t.Errorf("%d bytes for %d permits", grown, len(ps))
		}
		if s := g.Stats(); s.InFlight != 1000 || s.Limit != limit {
			t.Fatalf("%+v", s)
		}
		for _, p := range ps {
			p.Release()
		}
		atRest(t, g, 1000)
	}
}
