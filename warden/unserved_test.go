// SPDX-License-Identifier: Apache-2.0

// Who was not served, or badly, is counted by the limiter, apart from what the monitor is told (Q22, Q23).

package warden

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/monitor"
)

func TestUnserved(t *testing.T) {
	for name, c := range map[string]struct {
		end                                    func(Permit) bool
		unserved, failed, completed, abandoned uint64
	}{
		"released":            {Permit.Release, 0, 0, 1, 0},
		"discarded":           {Permit.Discard, 0, 0, 0, 0},
		"abandoned":           {Permit.Abandon, 1, 0, 0, 1},
		"failed, abandoned":   {func(p Permit) bool { return p.Failed().Abandon() }, 1, 0, 0, 1},
		"released, unserved":  {func(p Permit) bool { return p.Unserved().Release() }, 1, 0, 1, 0},
		"discarded, unserved": {func(p Permit) bool { return p.Unserved().Discard() }, 1, 0, 0, 0},
		"released, failed":    {func(p Permit) bool { return p.Failed().Release() }, 0, 1, 1, 0},
		"discarded, failed":   {func(p Permit) bool { return p.Failed().Discard() }, 0, 1, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var told monitor.Service
			w := mustNew(t, Config{})
			ctx, p, err := w.Acquire(t.Context(), Task{})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if !c.end(p) || p.Release() || p.Failed().Release() || (Permit{}).Unserved().Release() || (Permit{}).Failed().Release() {
				t.Errorf("Q22: %s: it ended never or twice", name)
			}
			if w.Holds(ctx) {
				t.Errorf("Q22: %s: the slot is held still", name)
			}
			time.Sleep(time.Second)
			w.SampleIfDue()
			for _, r := range w.History(nil, 0) {
				told.Count += r.Sample.Service.Count
				told.Abandoned += r.Sample.Service.Abandoned
			}
			s := w.Limiter().Stats()
			if s.Failed != c.failed {
				t.Errorf("Q23: %s: %d failed, want %d", name, s.Failed, c.failed)
			}
			if s.Abandoned != c.unserved || told.Count != c.completed || told.Abandoned != c.abandoned || s.Executed != 1 {
				t.Errorf("Q22: %s: %+v, told %+v", name, s.Tally, told)
			}
		})
	}
}

// A function that fails after its context has ended is abandoned, one that fails before has failed, and so has one that panics or ends
// its goroutine; one that answers is neither.
func TestDoCountsTheUnserved(t *testing.T) {
	w := mustNew(t, Config{})
	bad := errors.New("on purpose")
	for name, c := range map[string]struct {
		out               func() (int, error)
		leaves            bool
		abandoned, failed uint64
	}{
		"fails":                        {func() (int, error) { return 0, bad }, false, 0, 1},
		"answers":                      {func() (int, error) { return 0, nil }, false, 0, 0},
		"answers when its client left": {func() (int, error) { return 0, nil }, true, 0, 0},
		"fails when its client left":   {func() (int, error) { return 0, context.Canceled }, true, 1, 0},
		"panics":                       {func() (int, error) { panic(bad) }, false, 0, 1},
		"ends its goroutine":           {func() (int, error) { runtime.Goexit(); return 0, nil }, false, 0, 1},
	} {
		before := w.Limiter().Stats()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			defer func() { _ = recover() }()
			_, _ = Do(ctx, w, Task{}, func(context.Context) (int, error) {
				if c.leaves {
					cancel()
				}
				return c.out()
			})
		})
		all.Wait()
		cancel()
		now := w.Limiter().Stats()
		if got := now.Abandoned - before.Abandoned; got != c.abandoned {
			t.Errorf("Q22: %s: %d abandoned", name, got)
		}
		if got := now.Failed - before.Failed; got != c.failed || now.Executed != before.Executed+1 || now.Running != 0 {
			t.Errorf("Q23: %s: %d failed: %+v", name, got, now.Tally)
		}
	}
}
