// SPDX-License-Identifier: Apache-2.0

// Who was not served is counted by the limiter, apart from what the monitor is told (Q22).

package warden

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/monitor"
)

func TestUnserved(t *testing.T) {
	for name, c := range map[string]struct {
		end                            func(Permit) bool
		unserved, completed, abandoned uint64
	}{
		"released":            {Permit.Release, 0, 1, 0},
		"discarded":           {Permit.Discard, 0, 0, 0},
		"abandoned":           {Permit.Abandon, 1, 0, 1},
		"released, unserved":  {func(p Permit) bool { return p.Unserved().Release() }, 1, 1, 0},
		"discarded, unserved": {func(p Permit) bool { return p.Unserved().Discard() }, 1, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var told monitor.Service
			w := mustNew(t, Config{})
			ctx, p, err := w.Acquire(t.Context(), Task{})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if !c.end(p) || p.Release() || p.Unserved().Release() || (Permit{}).Unserved().Release() {
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
			if s.Abandoned != c.unserved || told.Count != c.completed || told.Abandoned != c.abandoned || s.Executed != 1 {
				t.Errorf("Q22: %s: %+v, told %+v", name, s.Tally, told)
			}
		})
	}
}

// A function that fails after its context has ended is abandoned; one that answers all the same, or fails before, is not.
func TestDoCountsTheUnserved(t *testing.T) {
	w := mustNew(t, Config{})
	for _, c := range []struct {
		out    error
		leaves bool
		want   uint64
	}{
		{errors.New("on purpose"), false, 0}, {nil, true, 0}, {context.Canceled, true, 1},
	} {
		before := w.Limiter().Stats().Abandoned
		ctx, cancel := context.WithCancel(t.Context())
		_, _ = Do(ctx, w, Task{}, func(context.Context) (int, error) {
			if c.leaves {
				cancel()
			}
			return 0, c.out
		})
		cancel()
		if got := w.Limiter().Stats().Abandoned - before; got != c.want {
			t.Errorf("Q22: %+v: %d", c, got)
		}
	}
}
