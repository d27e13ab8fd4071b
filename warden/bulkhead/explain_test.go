// SPDX-License-Identifier: Apache-2.0

// What an explanation names: the bound that kept a call from running, and whose deadline it was.

package bulkhead

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// TestARejectionNamesTheBoundThatActed fills each bound in turn; the next call may not wait.
func TestARejectionNamesTheBoundThatActed(t *testing.T) {
	others := CompartmentConfig{Name: "others", Guaranteed: 2}
	for name, c := range map[string]struct {
		a      CompartmentConfig
		tenant string
		mine   int // of the slots of "a", taken by "a" itself
		theirs int // taken by the others
		target int // of a decision; 0: none
		bound  decision.Bound
		limit  int
	}{
		"own slots":    {a: CompartmentConfig{Guaranteed: 3}, mine: 3, bound: BoundSlots, limit: 3},
		"borrow limit": {a: CompartmentConfig{Guaranteed: 1, Max: 4}, mine: 4, bound: BoundBorrow, limit: 4},
		"tenant limit": {
			a: CompartmentConfig{Guaranteed: 3, MaxQueue: 1, MaxWait: time.Second, Tenants: TenantsConfig{Max: 2}}, tenant: "x", mine: 2,
			bound: BoundTenant, limit: 2,
		},
		"what is kept":   {a: CompartmentConfig{Max: 6}, mine: 4, bound: BoundTotal, limit: 6},
		"a full set":     {a: CompartmentConfig{Guaranteed: 3, Max: 6}, mine: 4, theirs: 2, bound: BoundTotal, limit: 6},
		"a lower target": {a: CompartmentConfig{Guaranteed: 4}, mine: 3, target: 5, bound: BoundTotal, limit: 5},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *crew) {
				c.a.Name = "a"
				s := mustNew(t, Config{Total: 6, Compartments: []CompartmentConfig{c.a, others}})
				if c.target > 0 {
					s.Apply(bound(7, c.target))
				}
				for range c.theirs {
					w.send(s.Compartment("others"), "other")
				}
				a := s.Compartment("a").Tenant(c.tenant)
				for range c.mine {
					if j := w.send(a, "mine"); !j.runs() {
						t.Fatal("it does not run")
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond) // for the one that may wait
				defer cancel()
				_, err := Do(ctx, a, nothing)
				var r *decision.Rejection
				if !errors.As(err, &r) {
					t.Fatal(err)
				}
				if r.Bound != c.bound || r.Limit != c.limit || r.Limiter != "a" || r.Task.Name != c.tenant {
					t.Errorf("%s %d, want %s %d: %v", r.Bound, r.Limit, c.bound, c.limit, err)
				}
				if c.target > 0 && (r.Decision.Seq != 7 || r.Decision.TargetConcurrency != c.target) {
					t.Errorf("decision %+v", r.Decision)
				}
			})
		})
	}
}

// TestARejectionNamesTheDeadlineThatCounted lets calls wait until the earliest of their deadlines.
func TestARejectionNamesTheDeadlineThatCounted(t *testing.T) {
	for name, c := range map[string]struct {
		config CompartmentConfig
		own    time.Duration // of the caller's context
		from   decision.DeadlineSource
		after  time.Duration
	}{
		"MaxWait":                {CompartmentConfig{MaxWait: time.Second, Timeout: time.Minute}, time.Hour, fromMaxWait, time.Second},
		"MaxWait and no other":   {CompartmentConfig{MaxWait: time.Second}, 0, fromMaxWait, time.Second},
		"Timeout":                {CompartmentConfig{Timeout: 2 * time.Second}, time.Hour, fromTimeout, 2 * time.Second},
		"the caller's":           {CompartmentConfig{MaxWait: time.Minute}, 3 * time.Second, "context", 3 * time.Second},
		"the caller's, no other": {CompartmentConfig{}, 3 * time.Second, "context", 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *crew) {
				c.config.Guaranteed, c.config.MaxQueue = 1, 1
				s, a := single(t, c.config)
				p := must(hold(t, a))(t)
				defer p.Release(nil)
				ctx := t.Context()
				if c.own > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.own)
					defer cancel()
				}
				due := time.Now().Add(c.after)
				_, err := Do(ctx, a, nothing)
				r := s.Recent()
				if err == nil || len(r) != 1 {
					t.Fatalf("%v, %+v", err, r)
				}
				if e := r[0]; e.DeadlineFrom != c.from || !e.Deadline.Equal(due) || e.Waited != c.after || !time.Now().Equal(due) {
					t.Errorf("%s %s, want %s %s: %v", e.DeadlineFrom, e.Deadline, c.from, due, e)
				}
				if errors.Is(err, ErrTimeout) != (c.from != "context") || !errors.Is(err, decision.ErrRejected) {
					t.Error(err)
				}
			})
		})
	}
}

func hold(t *testing.T, c *Compartment) (Permit, error) {
	t.Helper()
	_, p, err := c.Acquire(t.Context())
	return p, err
}
