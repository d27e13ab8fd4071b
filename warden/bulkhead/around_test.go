// SPDX-License-Identifier: Apache-2.0

// What else surrounds a call: permits, observers, and compartments that there are none of.

package bulkhead

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

func TestPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &breaker{}
		s, a := single(t, CompartmentConfig{Guaranteed: 1, Timeout: time.Second, Breaker: b})
		ctx, p, err := a.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := a.Acquire(t.Context()); !errors.Is(err, decision.ErrRejected) {
			t.Error(err)
		}
		<-ctx.Done()
		copied := p
		if !p.Release(ctx.Err()) || copied.Release(nil) || (Permit{}).Release(nil) {
			t.Error("a permit is released by the first of its copies, once")
		}
		ctx, p, _ = a.Acquire(t.Context())
		p.Release(nil)
		if ctx.Err() == nil {
			t.Error("the context outlives the permit")
		}
		c := a.Snapshot()
		if len(b.told) != 2 || !errors.Is(b.told[0], ErrTimeout) || c.Outcomes["timeout_running"] != 1 || c.Outcomes["succeeded"] != 1 {
			t.Errorf("told %v; %+v", b.told, c)
		}
		rest(t, s, 0)
	})
}

func TestAnObserverThatPanicsOrAsks(t *testing.T) {
	var s *Set
	s = mustNew(t, Config{Total: 1, Observer: observerFunc(func(Event) {
		s.Snapshot()
		_, _ = Do(context.Background(), s.Compartment("b"), nothing)
		panic("observer")
	}), Compartments: []CompartmentConfig{{Name: "a", Guaranteed: 1}, {Name: "b", Max: 1}}})
	s.observer = onlyOf{"a", s.observer}
	a := s.Compartment("a")
	if v, err := Do(t.Context(), a, func(context.Context) (int, error) { return 7, nil }); v != 7 || err != nil {
		t.Error(v, err)
	}
	s.Apply(bound(1, 1))
	if _, err := s.Resize(s.Plan()); err != nil {
		t.Error(err)
	}
	if n := s.Snapshot().ObserverPanics; n != 3 {
		t.Errorf("%d panics counted", n)
	}
	rest(t, s, 0)
}

type observerFunc func(Event)

func (f observerFunc) Observe(e Event) { f(e) }

// onlyOf passes on what is of one compartment or of none.
type onlyOf struct {
	name string
	to   Observer
}

func (o onlyOf) Observe(e Event) {
	if e.Limiter == "" || e.Limiter == o.name {
		o.to.Observe(e)
	}
}

func TestObserverSeesTheWaitAndTheReason(t *testing.T) {
	inBubble(t, func(t *testing.T, w *crew) {
		seen := &recording{}
		s := mustNew(t, Config{Total: 2, Observer: seen, Compartments: []CompartmentConfig{
			{Name: "a", Guaranteed: 1, MaxQueue: 1, Tenants: TenantsConfig{Max: 1}, MaxWait: time.Second},
		}})
		a := s.Compartment("a").Tenant("t")
		first := w.send(a, "first")
		second := w.send(a, "second")
		_, _ = Do(t.Context(), a, nothing)
		sleep(time.Millisecond)
		w.let(first)
		sleep(time.Millisecond)
		w.let(second)
		e := seen.of(Answered)
		if len(e) != 3 || e[0].Outcome != decision.Rejected || e[0].Reason != decision.QueueOverflow || e[0].Task.Name != "t" ||
			e[2].Waited != time.Millisecond ||
			e[2].Took != time.Millisecond || e[1].Took != time.Millisecond || e[1].Outcome != Succeeded || e[1].At.IsZero() {
			t.Errorf("%+v", e)
		}
		w.send(a, "third")
		_, _ = Do(t.Context(), a, nothing)
		if e = seen.of(Answered); e[3].Reason != TimeoutQueued || e[3].Waited != time.Second {
			t.Errorf("%+v", e[3])
		}
	})
}

func TestNilAndUnknown(t *testing.T) {
	s, a := single(t, CompartmentConfig{Guaranteed: 1})
	for name, c := range map[string]*Compartment{"nobody": s.Compartment("nobody"), "": nil} {
		if c.Name() != name || c.Criticality() != 0 || c.Tenant("x") != c || c.Snapshot().Name != "" {
			t.Errorf("%q has something", name)
		}
		if _, ok := c.TenantKey(); ok {
			t.Errorf("%q is no tenant", name)
		}
		_, err := Do(t.Context(), c, nothing)
		if !errors.Is(err, ErrUnknownCompartment) || !strings.Contains(err.Error(), name) {
			t.Error(err)
		}
		if _, _, err := c.Acquire(t.Context()); !errors.Is(err, ErrUnknownCompartment) {
			t.Error(err)
		}
		if _, err := DoOr(t.Context(), c, nothing, func(context.Context, error) (int, error) {
			t.Error("a fallback")
			return 0,
				nil
		}); !errors.Is(err, ErrUnknownCompartment) {
			t.Error(err)
		}
	}
	if n := s.Snapshot().Unknown; n != 3 {
		t.Errorf("%d calls of unknown compartments, want 3", n)
	}
	if a.Name() != "a" || a.Tenant("x") != a {
		t.Error(a.Name())
	}
}
