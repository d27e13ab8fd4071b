// SPDX-License-Identifier: Apache-2.0

// Many goroutines at one limiter at once, for the race detector and for what only real parallelism shows.

package limiter

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

const rounds = 3000

// together runs f n times at once and waits.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// account counts outcomes as the callers see them.
type account struct {
	executed, rejected, canceled, inside atomic.Int64
}

// spend asks for a slot, in one of all ways, and uses it; it returns false if the limiter is closed.
func (a *account) spend(t *testing.T, l *Limiter, rng *rand.Rand, most int64) bool {
	task := Task{Priority: decision.Priority(rng.IntN(256) - 128)}
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	switch rng.IntN(6) {
	case 0:
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(100))*time.Microsecond)
	case 1:
		ctx, cancel = context.WithCancel(ctx)
		go func() { cancel() }()
	case 2:
		task.Deadline = time.Now().Add(time.Duration(rng.IntN(100)) * time.Microsecond)
	}
	defer cancel()
	use := func(p Permit) {
		if n := a.inside.Add(1); n > most {
			t.Errorf("%d inside, target %d at most", n, most)
		}
		if e := p.Explain(); e.Task != task || e.Grant == "" || e.Decision == nil {
			t.Errorf("explained as %+v", e)
		}
		a.inside.Add(-1)
		wins := 0
		for range 2 {
			if p.Release() {
				wins++
			}
		}
		if wins != 1 {
			t.Errorf("%d releases of one permit", wins)
		}
		a.executed.Add(1)
	}
	var p Permit
	var err error
	if rng.IntN(5) == 0 {
		p, err = l.TryAcquire(task)
	} else {
		p, err = l.Acquire(ctx, task)
	}
	var r *decision.Rejection
	switch {
	case err == nil:
		use(p)
	case !errors.As(err, &r):
		t.Error(err)
	case r.Reason == decision.Canceled:
		a.canceled.Add(1)
	case r.Reason == decision.Closed:
		a.rejected.Add(1)
		return false
	default:
		a.rejected.Add(1)
	}
	return true
}

// atRest compares the callers' account with the limiter's.
func (a *account) atRest(t *testing.T, l *Limiter) {
	t.Helper()
	s := l.Stats()
	if s.Running != 0 || s.Queued != 0 || s.Executed != uint64(a.executed.Load()) || s.Rejected != uint64(a.rejected.Load()) ||
		s.Canceled != uint64(a.canceled.Load()) {
		t.Errorf("at rest %+v; callers saw %d executed, %d rejected, %d canceled", s, a.executed.Load(), a.rejected.Load(),
			a.canceled.Load())
	}
}

// TestRaceStorm mixes everything while decisions change.
func TestRaceStorm(t *testing.T) {
	const most = 4
	for _, every := range []int{0, 3} {
		var a account
		l := mustNew(t, Config{MaxQueue: 5, StarvationEvery: every, Initial: fixed(2)})
		stop := make(chan struct{})
		var control sync.WaitGroup
		control.Go(func() {
			rng := rand.New(rand.NewPCG(7, 7))
			for seq := uint64(2); ; seq++ {
				select {
				case <-stop:
					return
				default:
				}
				l.Apply(decision.ControlDecision{
					Seq: seq, TargetConcurrency: rng.IntN(most + 1), ShedProbability: rng.Float64() / 2, Yields: rng.IntN(3),
					ValidFor: time.Duration(rng.IntN(50)) * time.Microsecond, Expected: time.Duration(rng.IntN(50)) * time.Microsecond,
				})
				if s := l.Stats(); s.Queued > 5 {
					t.Errorf("%d wait", s.Queued)
				}
				if rng.IntN(3) == 0 {
					time.Sleep(20 * time.Microsecond) // else nobody would ever be served for long under a target of 0
				}
			}
		})
		together(8, func(i int) {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			for range rounds / 2 {
				a.spend(t, l, rng, most)
			}
		})
		close(stop)
		control.Wait()
		a.atRest(t, l)
	}
}

// TestRaceNoLostWakeUp has more goroutines than slots, none of which may be rejected: all must get through.
func TestRaceNoLostWakeUp(t *testing.T) {
	for _, slots := range []int{1, 2, 3} {
		l := mustNew(t, Config{MaxQueue: 8, Initial: fixed(slots)})
		var inside atomic.Int64
		together(8, func(int) {
			for range rounds {
				p, err := l.Acquire(context.Background(), Task{})
				if err != nil {
					t.Error(err)
				}
				if n := inside.Add(1); n > int64(slots) {
					t.Errorf("Q9: %d inside, target %d", n, slots)
				}
				inside.Add(-1)
				p.Release()
			}
		})
		if s := l.Stats(); s.Executed != 8*rounds || s.Running != 0 || s.Queued != 0 {
			t.Errorf("Q9: at rest: %+v", s)
		}
	}
}

// TestRaceGrantMeetsCancel ends contexts at the instant of the grant: whoever loses, the slot is not lost.
func TestRaceGrantMeetsCancel(t *testing.T) {
	l := mustNew(t, Config{MaxQueue: 4, Initial: fixed(1)})
	var a account
	for range rounds {
		first, err := l.TryAcquire(Task{})
		if err != nil {
			t.Fatalf("Q12: a slot was lost: %v", err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		go cancel()
		go first.Release()
		a.executed.Add(1)
		p, err := l.Acquire(ctx, Task{})
		var r *decision.Rejection
		switch {
		case err == nil:
			a.executed.Add(1)
			p.Release()
		case errors.As(err, &r) && r.Reason == decision.Canceled && errors.Is(err, context.Canceled):
			a.canceled.Add(1)
		default:
			t.Fatal("Q12: ", err)
		}
		for l.Stats().Running > 0 { // the first permit's goroutine
			patient, giveUp := context.WithTimeout(context.Background(), time.Minute)
			p, err := l.Acquire(patient, Task{})
			if giveUp(); err != nil {
				t.Fatalf("Q12: a slot was lost: %v", err)
			}
			a.executed.Add(1)
			p.Release()
		}
		cancel()
	}
	a.atRest(t, l)
	t.Logf("%d granted, %d canceled", a.executed.Load()-rounds, a.canceled.Load())
}

// TestRaceClose closes a busy limiter: everybody comes back, and the account is right.
func TestRaceClose(t *testing.T) {
	for i := range 100 {
		l := mustNew(t, Config{MaxQueue: 3, Initial: fixed(2)})
		var a account
		var wg sync.WaitGroup
		for j := range 6 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), uint64(j)))
				for a.spend(t, l, rng, 2) {
				}
			})
		}
		l.Close()
		l.Close()
		wg.Wait()
		a.atRest(t, l)
	}
}
