// SPDX-License-Identifier: Apache-2.0

// Too late is what its own kind of work makes it (Q19): every task against the sentence, and a belief that is not true any more.

package limiter

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/warden/decision"
)

// Q19: behind a slot that nobody gives back, each task is told no when less is left than its own kind needs, a task of an unknown
// kind or a trial at its deadline, and none sooner, whatever the others are expected to take.
func TestPropertyEachKindByItsOwnNeed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ms := func(label string, most int) time.Duration {
			return time.Duration(rapid.IntRange(1, most).Draw(rt, label)) * time.Millisecond
		}
		d := decision.ControlDecision{Seq: 1, TargetConcurrency: 1, Expected: ms("expected", 500), Needs: map[string]time.Duration{}}
		for _, name := range []string{"", "a", "b"} {
			if rapid.Bool().Draw(rt, name+" is known") {
				d.Needs[name] = ms(name+" needs", 200)
			}
		}
		type asked struct {
			kind         string
			trial        bool
			left, waited time.Duration
		}
		tasks := make([]asked, rapid.IntRange(1, 12).Draw(rt, "tasks"))
		for i := range tasks {
			tasks[i] = asked{kind: rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(rt, "kind"),
				trial: rapid.IntRange(0, 3).Draw(rt, "trial") == 0, left: ms("left", 300)}
		}
		bubble(t, func(t *testing.T) {
			draw := 0.0
			l := mustNew(t, Config{MaxQueue: len(tasks), Initial: d, Rand: func() float64 { return draw }})
			defer must(l.TryAcquire(Task{}))(t).Release()
			var all sync.WaitGroup
			for i := range tasks {
				a := &tasks[i]
				if draw = 0; a.trial {
					draw = 0.99
				}
				all.Go(func() {
					began := time.Now()
					_, err := l.Acquire(context.Background(), Task{Name: a.kind, Deadline: began.Add(a.left)})
					var r *decision.Rejection
					if !errors.As(err, &r) || r.Reason != decision.DeadlineExceeded {
						t.Errorf("Q19: %+v: %v", *a, err)
					}
					a.waited = time.Since(began)
				})
				synctest.Wait()
			}
			all.Wait()
		})
		for _, a := range tasks {
			want := a.left // its deadline
			if need := d.Needs[a.kind]; need > 0 && !a.trial {
				want = max(0, a.left-need+1) // the first instant at which less is left
			}
			if a.waited != want {
				rt.Fatalf("Q19: %+v was told no after %v, want %v; needs %v, expected %v", a, a.waited, want, d.Needs, d.Expected)
			}
		}
	})
}

// Q19: a kind of work of which an hour is believed, and which takes a millisecond, is found out while others keep the only slot
// busy.
func TestNoBeliefLatches(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := fixed(1)
		d.Needs = needs(time.Hour, "quick")
		var mu sync.Mutex
		source := rand.New(rand.NewPCG(19, 1))
		l := mustNew(t, Config{MaxQueue: 8, Initial: d, Rand: func() float64 {
			mu.Lock()
			defer mu.Unlock()
			return source.Float64()
		}})
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				for ctx.Err() == nil {
					_, _ = Do(ctx, l, Task{Name: "slow"}, func(context.Context) (int, error) {
						time.Sleep(10 * time.Millisecond)
						return 0,
							nil
					})
				}
			})
		}
		done := 0
		for range 20 * trials {
			time.Sleep(time.Millisecond)
			if p, err := l.Acquire(ctx, Task{Name: "quick", Deadline: time.Now().Add(100 * time.Millisecond)}); err == nil {
				p.Release()
				done++
			}
		}
		stop()
		all.Wait()
		if done < 5 || done > 60 {
			t.Errorf("Q19: %d of %d were tried, want one in %d", done, 20*trials, trials)
		}
	})
}
