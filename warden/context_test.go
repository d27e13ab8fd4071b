// SPDX-License-Identifier: Apache-2.0

// How much work matters, and that nobody waits for itself.

package warden

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/limiter"
	"github.com/stopbank/stopbank/warden/monitor"
)

// single runs one task at a time.
type single struct{}

func (single) Step(s monitor.Sample) decision.ControlDecision {
	return decision.ControlDecision{Seq: 1, At: s.At, TargetConcurrency: 1}
}

func newSingle(t testing.TB, name string) *Warden {
	t.Helper()
	return must(
		New(Config{Controller: single{}, Limiter: limiter.Config{Name: name, Initial: single{}.Step(monitor.Sample{})}}),
	)(t)
}

// nest asks one warden after the other, each from inside the one before.
func nest(ctx context.Context, in []*Warden) error {
	if len(in) == 0 {
		return nil
	}
	_, err := Do(ctx, in[0], Task{}, func(ctx context.Context) (int, error) { return 0, nest(ctx, in[1:]) })
	return err
}

// However deep wardens are nested, the first that is met twice rejects, at once; different ones are no matter.
func TestPropertyReentryIsRejected(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		all := []*Warden{newSingle(t, "a"), newSingle(t, "b"), newSingle(t, "c")}
		var path []*Warden
		twice := ""
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, 2), 0, 6).Draw(rt, "path") {
			for _, w := range path {
				if w == all[i] && twice == "" {
					twice = w.name
				}
			}
			path = append(path, all[i])
		}
		err := nest(t.Context(), path)
		var reentry *decision.ReentryError
		if errors.As(err, &reentry) != (twice != "") || twice != "" && (reentry.Limiter != twice || !errors.Is(err, ErrReentry) ||
			errors.Is(err, ErrRejected)) {
			rt.Fatalf("%v, want re-entry of %q", err, twice)
		}
		for _, w := range all {
			if s := w.Limiter().Stats(); s.Running != 0 || s.Queued != 0 || s.Submitted != s.Executed {
				rt.Fatalf("%s: %+v", w.name, s)
			}
			if got := w.Stats().Reentries; (got == 1) != (w.name == twice) {
				rt.Fatalf("%s: %d re-entries", w.name, got)
			}
		}
	})
}

// The mark is good for all that the function hands its context to, and ends with the slot.
func TestTheMarkEndsWithTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSingle(t, "w")
		ctx, p, err := w.Acquire(t.Context(), Task{})
		if err != nil || !w.Holds(ctx) || w.Holds(t.Context()) {
			t.Fatal(err, w.Holds(ctx), w.Holds(t.Context()))
		}
		detached := context.WithoutCancel(ctx)
		var others sync.WaitGroup
		others.Go(func() {
			if _, _, err := w.Acquire(detached, Task{}); !errors.Is(err, ErrReentry) {
				t.Errorf("another goroutine: %v", err)
			}
		})
		others.Wait()
		others.Go(func() { // waits, as it should: it is other work
			if _, err := Do(t.Context(), w, Task{}, func(context.Context) (int, error) { return 0, nil }); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if s := w.Limiter().Stats(); s.Queued != 1 {
			t.Errorf("%+v, want one that waits", s)
		}
		p.Release()
		others.Wait()
		if w.Holds(detached) {
			t.Error("the mark outlives the slot")
		}
		if _, err := Do(detached, w, Task{}, func(context.Context) (int, error) { return 0, nil }); err != nil {
			t.Errorf("after the release: %v", err)
		}
		ctx, p, _ = w.Acquire(t.Context(), Task{})
		if p.Discard(); w.Holds(ctx) {
			t.Error("the mark outlives what was discarded")
		}
	})
}

// A task that says nothing matters as much as what it is part of.
func TestPriorityOfTheContext(t *testing.T) {
	w, other := newSingle(t, "w"), newSingle(t, "other")
	asked := func(ctx context.Context, w *Warden, p decision.Priority) (task, inside decision.Priority) {
		ctx, permit, err := w.Acquire(ctx, Task{Priority: p})
		if err != nil {
			t.Fatal(err)
		}
		defer permit.Release()
		return permit.permit.Explain().Task.Priority, PriorityFrom(ctx)
	}
	if p := PriorityFrom(t.Context()); p != decision.Normal {
		t.Errorf("nothing was said: %v", p)
	}
	for _, c := range []struct{ said, task, want decision.Priority }{
		{decision.Normal, decision.Normal, decision.Normal}, {decision.Critical, decision.Normal, decision.Critical},
		{decision.Background, decision.Normal, decision.Background}, {-128, decision.Normal, -128},
		{decision.Critical, decision.Background, decision.Background},
		{decision.Background, decision.Critical, decision.Critical}, {decision.Critical, 1, 1},
	} {
		ctx := WithPriority(t.Context(), c.said)
		if task, inside := asked(ctx, w, c.task); task != c.want || inside != c.want {
			t.Errorf("%v under %v: %v, inside %v, want %v", c.task, c.said, task, inside, c.want)
		}
		outer, permit, err := w.Acquire(ctx, Task{Priority: c.task})
		if err != nil {
			t.Fatal(err)
		}
		if task, _ := asked(outer, other, decision.Normal); task != c.want {
			t.Errorf("one further inside: %v, want %v", task, c.want)
		}
		if task, _ := asked(WithPriority(outer, decision.Normal), other, decision.Normal); task != decision.Normal {
			t.Errorf("taken back: %v", task)
		}
		permit.Release()
	}
}
