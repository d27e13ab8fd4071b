// SPDX-License-Identifier: Apache-2.0

// The last look of a task that was granted its slot (Q15), for contexts and deadlines that end at any of its looks.

package limiter

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/decision"
)

// A moody context has ended when it is asked for the given time, and lets a while pass when it is asked first.
type moody struct {
	context.Context
	ends, asked int
	passes      time.Duration
}

func (c *moody) Err() error {
	if c.asked++; c.asked == 1 {
		time.Sleep(c.passes)
	}
	if c.asked >= c.ends {
		return context.Canceled
	}
	return nil
}

// With Yields, a task starts only if neither its context had ended nor its deadline passed when it last looked, which is after it
// has let others run. Its slot is its own, or free.
func TestPropertyLooksOnceMore(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := fixed(1)
		d.Yields = rapid.IntRange(0, 3).Draw(rt, "yields")
		ctx := &moody{Context: context.Background(), ends: rapid.IntRange(1, 4).Draw(rt, "ends"),
			passes: time.Duration(rapid.IntRange(0, 4).Draw(rt, "passes")) * 2 * time.Millisecond}
		due := time.Duration(rapid.IntRange(0, 4).Draw(rt, "due"))*2*time.Millisecond - time.Millisecond // less than zero: none
		how := rapid.SampledFrom([]string{"Acquire", "Do", "TryAcquire"}).Draw(rt, "how")
		var err error
		var running int
		synctest.Test(t, func(t *testing.T) {
			l := mustNew(t, Config{Initial: d})
			var task Task
			if due > 0 {
				task.Deadline = time.Now().Add(due)
			}
			switch how {
			case "Acquire":
				_, err = l.Acquire(ctx, task)
				running = l.Stats().Running
			case "Do":
				_, err = Do(ctx, l, task, func(context.Context) (int, error) { running = l.Stats().Running; return 0, nil })
				if n := l.Stats().Running; n != 0 {
					t.Errorf("Q15: %d run when it has returned", n)
				}
			default:
				_, err = l.TryAcquire(task)
				running = l.Stats().Running
			}
		})
		if how == "TryAcquire" {
			if err != nil || ctx.asked != 0 {
				rt.Fatalf("Q15: TryAcquire: %v", err)
			}
			return
		}
		looks := 1 // it looks again if it has let others run, unless it has ended before
		if d.Yields > 0 && ctx.ends > 1 {
			looks = 2
		}
		canceled, late := ctx.ends <= looks, looks == 2 && due > 0 && due <= ctx.passes
		var r *decision.Rejection
		switch {
		case canceled || late:
			if !errors.As(err, &r) || r.Reason != decision.Canceled && r.Reason != decision.DeadlineExceeded ||
				r.Reason == decision.DeadlineExceeded && !late || running != 0 {
				rt.Fatalf("Q15: canceled %v, late %v, and %v, %d run", canceled, late, err, running)
			}
		case err != nil || running != 1:
			rt.Fatalf("Q15: in time at its last look, and %v, %d run", err, running)
		}
		if ctx.asked < looks {
			rt.Fatalf("Q15: looked at %d times, want %d", ctx.asked, looks)
		}
	})
}
