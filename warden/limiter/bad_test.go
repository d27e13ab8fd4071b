// SPDX-License-Identifier: Apache-2.0

// Bad input: configurations, arguments and decisions that nobody should pass.

package limiter

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// TestBadConfig is rejected with the field's name.
func TestBadConfig(t *testing.T) {
	for want, cfg := range map[string]Config{
		"Config.MaxQueue is -1":                                  {MaxQueue: -1},
		"Config.StarvationEvery is -1":                           {StarvationEvery: -1},
		"Config.Observer is a nil *limiter.recording; allowed: ": {Observer: (*recording)(nil)},
		"Config.Recent is -1":                                    {Recent: -1},
		"Config.Initial.ShedProbability is NaN": {Initial: decision.ControlDecision{Seq: 1,
			ShedProbability: math.NaN()}},
		"Config.Initial.ShedProbability is +Inf": {Initial: decision.ControlDecision{ShedProbability: math.Inf(1)}},
		"Config.Initial.TargetConcurrency is -1": {Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: -1}},
		"Config.Initial.Stale.Yields is -1": {Initial: decision.ControlDecision{Seq: 1,
			Stale: &decision.ControlDecision{Yields: -1}}},
		"Config.Initial.Seq is 0; allowed: 1 or more; 0 only in": {Initial: decision.ControlDecision{TargetConcurrency: 5}},
	} {
		l, err := New(cfg)
		var invalid *decision.InvalidError
		if l != nil || !errors.Is(err, decision.ErrInvalid) || !errors.As(err, &invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want it to say %q", cfg, err, want)
		}
	}
	for _, cfg := range []Config{{}, {Initial: decision.Default()},
		{Initial: decision.ControlDecision{Seq: 1, Burst: math.MaxInt64}}} {
		if _, err := New(cfg); err != nil {
			t.Error(err)
		}
	}
}

// TestBadObservers are rejected with the element's index: a nil one would panic at each event.
func TestBadObservers(t *testing.T) {
	good := new(recording)
	for want, o := range map[string]Observers{
		"limiter.Config.Observer[0]":    {nil},
		"limiter.Config.Observer[1]":    {good, (*recording)(nil)},
		"limiter.Config.Observer[1][0]": {good, Observers{nil}},
	} {
		_, err := New(Config{Observer: o})
		var invalid *decision.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != want || invalid.Allowed == "" {
			t.Errorf("%v, want an InvalidError of %s", err, want)
		}
	}
	for _, o := range []Observers{nil, {}, {good, Observers{good}}} {
		if _, err := New(Config{Observer: o}); err != nil {
			t.Error(err)
		}
	}
}

// TestBadArguments are typed errors, or nothing at all.
func TestBadArguments(t *testing.T) {
	l := mustNew(t, Config{})
	var zero Limiter
	fn := func(context.Context) (int, error) { t.Error("called"); return 0, nil }
	for name, call := range map[string]func() error{
		"zero Do":    func() error { _, err := Do(t.Context(), &zero, Task{}, fn); return err },
		"nil Do":     func() error { _, err := Do(t.Context(), nil, Task{}, fn); return err },
		"nil fn":     func() error { _, err := Do[int](t.Context(), l, Task{}, nil); return err },
		"nil ctx":    func() error { _, err := l.Acquire(nil, Task{}); return err }, //nolint:staticcheck // on purpose
		"nil ctx Do": func() error { _, err := Do(nil, l, Task{}, fn); return err }, //nolint:staticcheck // on purpose
	} {
		var invalid *decision.InvalidError
		if err := call(); !errors.Is(err, decision.ErrInvalid) || !errors.As(err, &invalid) || invalid.Allowed == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s := l.Stats(); s.Submitted != 0 || s.Running != 0 {
		t.Errorf("%+v", s)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Do(done, l, Task{}, fn)
	if wantReason(t, err, decision.Canceled); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestMalformedDecisions leave nobody stuck and no rule broken.
func TestMalformedDecisions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, p := occupied(t, Config{})
		q := newLine(t, l)
		q.join(Task{Name: "x"})
		self := decision.ControlDecision{Seq: 2, TargetConcurrency: -5, ShedProbability: math.NaN(), ValidFor: -1,
			Expected: math.MinInt64, Yields: -9}
		self.Stale = &self
		l.Apply(self)
		if s := l.Stats(); s.Target != 0 {
			t.Errorf("%+v", s)
		}
		l.Apply(decision.ControlDecision{Seq: 1, TargetConcurrency: 9}) // older
		if s := l.Stats(); s.Target != 0 || s.Queued != 1 {
			t.Errorf("%+v", s)
		}
		l.Apply(decision.ControlDecision{Seq: 3, TargetConcurrency: math.MaxInt, ShedProbability: math.Inf(1), ValidFor: math.MaxInt64,
			Expected: math.MaxInt64, Yields: math.MaxInt})
		synctest.Wait()
		if s := l.Stats(); s.Target != math.MaxInt || len(q.started) != 1 {
			t.Errorf("%+v", s)
		}
		q.drain(p)
		hour := time.Now().Add(time.Hour)
		q.join(Task{Name: "y", Deadline: hour}) // a slot is free, although nothing that takes 292 years is done in an hour
		l.Apply(decision.ControlDecision{Seq: 4, TargetConcurrency: 1, Expected: math.MaxInt64, Needs: needs(math.MaxInt64, "z")})
		q.join(Task{Name: "z", Deadline: hour})
		q.wantRejected("z", decision.DeadlineExceeded)
		q.permits["y"].Release()
	})
}
