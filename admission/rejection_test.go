// SPDX-License-Identifier: Apache-2.0

// What a call costs, and what bad input, no gate and huge limits get.

package admission_test

import (
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
		says := fmt.Sprintf("%d; allowed: 1 or more (to reject everything, call Close)", limit)
		if g != nil || !errors.Is(err, admission.ErrInvalid) || !errors.As(err, &invalid) || invalid.Field != "Config.Limit" ||
			invalid.Value != limit || !strings.Contains(err.Error(), says) {
			t.Errorf("New(Limit %d) = %v, %v", limit, g, err)
		}
	}
	if got := admission.Reason(2).String(); got != "Reason(2)" { // the first that is none
		t.Error(got)
	}
	g, ran := mustNew(t, admission.Config{Limit: 1}), false
	fn := func() error { ran = true; return nil }
	_, nilCall := admission.Call[int](g, nil)
	_, call := admission.Call(nil, func() (int, error) { return 0, fn() })
	for field, errs := range map[string][]error{
		"fn": {g.Do(nil), nilCall}, "start": {g.Submit(nil)},
		"gate": {(*admission.Gate)(nil).Do(fn), call, (*admission.Gate)(nil).Submit(func(func()) error { return fn() })},
	} {
		for i, err := range errs {
			if !errors.As(err, &invalid) || invalid.Field != field || invalid.Allowed == "" || errors.Is(err, admission.ErrRejected) || ran {
				t.Errorf("%s, %d: %v, ran: %t", field, i, err, ran)
			}
		}
	}
	if s := g.Stats(); s.Admitted != 0 || s.Rejected != 0 {
		t.Fatalf("nonsense was counted: %+v", s)
	}
}

// The zero Gate is one of limit 0.
func TestZeroGate(t *testing.T) {
	var zero admission.Gate
	_, full := zero.TryAcquire()
	drained := zero.Drain(t.Context())
	zero.Close()
	var closed *admission.RejectedError
	if err := zero.Do(func() error { return nil }); !errors.Is(full, admission.ErrRejected) || drained != nil || !errors.As(err, &closed) ||
		closed.Reason != admission.Closed || zero.Stats() != (admission.Stats{Rejected: 2, RejectedClosed: 1}) {
		t.Fatalf("the zero Gate: %v, %v, %v, %+v", full, drained, err, zero.Stats())
	}
}

// TestHugeLimits: a limit is a number, and costs nothing until slots are taken.
func TestHugeLimits(t *testing.T) {
	for _, limit := range []int{math.MaxInt32, math.MaxInt} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		g := mustNew(t, admission.Config{Limit: limit})
		for range 1000 {
			must(g.TryAcquire())(t)
		}
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 64*1000 {
			t.Errorf("%d bytes for 1000 permits", grown)
		}
		if s := g.Stats(); s.InFlight != 1000 || s.Limit != limit {
			t.Fatalf("%+v", s)
		}
	}
}
