// Each invariant by itself, as plainly as it can be shown. The machine and the explorer hold them against everything else.

package limiter

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// TestQ1_ShrinksByAttrition lowers the target under running tasks: none starts until enough have ended.
func TestQ1_ShrinksByAttrition(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := mustNew(t, Config{MaxQueue: 10, Initial: fixed(3)})
		q := newLine(t, l)
		for i := range 5 {
			q.join(named(i, 0))
		}
		l.Apply(decision.ControlDecision{Seq: 2, TargetConcurrency: 1})
		for i, want := range []int{3, 3, 3} { // three ran; two end, nobody starts; the third ends, one starts
			if s := l.Stats(); len(q.started) != want || s.Running != 3-i || s.Queued != 2 {
				t.Fatalf("after %d endings: %d started, %+v", i, len(q.started), s)
			}
			q.permits[q.started[i]].Release()
			synctest.Wait()
		}
		if s := l.Stats(); len(q.started) != 4 || s.Running != 1 {
			t.Fatalf("%d started, %+v", len(q.started), s)
		}
		l.Apply(decision.ControlDecision{Seq: 3, TargetConcurrency: 2})
		synctest.Wait()
		if s := l.Stats(); len(q.started) != 5 || s.Running != 2 || s.Queued != 0 {
			t.Fatalf("a higher target started %d, %+v", len(q.started), s)
		}
	})
}

// TestQ2_SheddingIsTheLastResort has a free place and a decision to shed all.
func TestQ2_SheddingIsTheLastResort(t *testing.T) {
	l := mustNew(t, Config{MaxQueue: 1, Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 1, ShedProbability: 1}})
	for range 100 {
		p, err := l.Acquire(context.Background(), Task{Priority: lowest})
		if err != nil {
			t.Fatal(err)
		}
		if e := p.Explain(); e.Grant != SlotFree {
			t.Fatal(e)
		}
		p.Release()
	}
}

// TestQ3_TheQueueIsBounded submits more than fit.
func TestQ3_TheQueueIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, p := occupied(t, Config{MaxQueue: 3})
		q := newLine(t, l)
		for i := range 6 {
			q.join(named(i, 0))
			if n := l.Stats().Queued; n > 3 {
				t.Fatalf("%d wait", n)
			}
		}
		for _, name := range []string{"3", "4", "5"} {
			q.wantRefused(name, QueueOverflow)
		}
		q.wantOrder(p, "0", "1", "2")
	})
}

// TestQ4_PriorityThenAge orders a queue that moves, and one priority of it that stands.
func TestQ4_PriorityThenAge(t *testing.T) {
	fill := func(q *line) {
		q.join(Task{Name: "b1", Priority: Background})
		q.join(Task{Name: "h1", Priority: High})
		q.join(Task{Name: "b2", Priority: Background})
		q.join(Task{Name: "n1"})
		q.join(Task{Name: "h2", Priority: High})
		q.join(Task{Name: "lowest", Priority: lowest})
		q.join(Task{Name: "c1", Priority: Critical})
	}
	t.Run("moves", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			l, p := occupied(t, Config{})
			q := newLine(t, l)
			fill(q)
			sleep(20 * time.Millisecond)
			q.wantOrder(p, "c1", "h1", "h2", "n1", "b1", "b2", "lowest")
		})
	})
	t.Run("stands", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			l, p := occupied(t, Config{MaxQueue: 20, StandAfter: 20 * time.Millisecond})
			q := newLine(t, l)
			q.join(Task{Name: "b0", Priority: Background})
			sleep(time.Millisecond)
			fill(q)
			sleep(20 * time.Millisecond) // only b0 is older than that now
			q.wantOrder(p, "c1", "h1", "h2", "n1", "b2", "b1", "b0", "lowest")
		})
	})
	t.Run("another bound", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			l, p := occupied(t, Config{StandAfter: time.Second})
			q := newLine(t, l)
			q.join(named(1, 0))
			sleep(time.Second)
			q.join(named(2, 0))
			q.wantOrder(p, "1", "2")
		})
	})
}

// TestQ5_Deadlines has tasks leave the queue at their deadlines, by whichever they come, and refuses what can no longer
// finish.
func TestQ5_Deadlines(t *testing.T) {
	t.Run("leaves then", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			l, p := occupied(t, Config{})
			q := newLine(t, l)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			q.join(Task{Name: "own", Deadline: time.Now().Add(30 * time.Millisecond)})
			q.joinCtx(ctx, Task{Name: "context's"})
			q.joinCtx(ctx, Task{Name: "both", Deadline: time.Now().Add(40 * time.Millisecond)})
			q.join(Task{Name: "wall clock", Deadline: time.Now().Add(60 * time.Millisecond).Round(0)})
			q.join(Task{Name: "later", Deadline: time.Now().Add(time.Hour)})
			for _, at := range []struct {
				name string
				left int
			}{{"own", 4}, {"both", 3}, {"context's", 2}, {"wall clock", 1}} {
				if q.refusal(at.name) != nil {
					t.Errorf("%s left before its deadline", at.name)
				}
				time.Sleep(30 * time.Millisecond / 3)
				if at.name == "own" {
					time.Sleep(20 * time.Millisecond)
				}
				synctest.Wait()
				q.wantRefused(at.name, DeadlineExceeded)
				if n := l.Stats().Queued; n != at.left {
					t.Errorf("%d wait after %s has left", n, at.name)
				}
			}
			q.wantOrder(p, "later")
		})
	})
	t.Run("cannot finish", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			d := fixed(1)
			d.Expected = 30 * time.Millisecond
			l, p := occupied(t, Config{Initial: d})
			q := newLine(t, l)
			in := func(d time.Duration) time.Time { return time.Now().Add(d) }
			q.join(Task{Name: "at once", Deadline: in(d.Expected - 1)})
			q.wantRefused("at once", DeadlineExceeded)
			q.join(Task{Name: "just", Deadline: in(d.Expected + 5*time.Millisecond)})
			q.join(Task{Name: "soon", Deadline: in(d.Expected + 10*time.Millisecond)})
			sleep(5 * time.Millisecond) // just enough is left
			if q.refusal("just") != nil {
				t.Fatal("refused with what it needs")
			}
			p.Release()
			synctest.Wait()
			p = q.permits["just"]
			sleep(5*time.Millisecond + 1)
			if r := q.wantRefused("soon", DeadlineExceeded); r.Waited != 10*time.Millisecond+1 {
				t.Errorf("it left after %v", r.Waited)
			}
			q.join(Task{Name: "more", Deadline: in(d.Expected + 10*time.Millisecond)})
			d.Seq, d.Expected = 2, 35*time.Millisecond
			l.Apply(d)
			sleep(6 * time.Millisecond)
			p.Release() // its turn comes while 34 ms are left
			synctest.Wait()
			q.wantRefused("more", DeadlineExceeded)
		})
	})
	t.Run("less is expected meanwhile", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			d := fixed(1)
			d.Expected = 30 * time.Millisecond
			l, p := occupied(t, Config{Initial: d})
			q := newLine(t, l)
			q.join(Task{Name: "x", Deadline: time.Now().Add(50 * time.Millisecond)})
			d.Seq, d.Expected = 2, 10*time.Millisecond
			l.Apply(d)
			sleep(40 * time.Millisecond)
			if q.refusal("x") != nil {
				t.Fatal("it left although it could still finish")
			}
			sleep(1)
			q.wantRefused("x", DeadlineExceeded)
			p.Release()
		})
	})
	t.Run("without waiting", func(t *testing.T) {
		l := mustNew(t, Config{})
		past := Task{Deadline: time.Now().Add(-time.Second)}
		_, err := l.Acquire(t.Context(), past)
		wantReason(t, err, DeadlineExceeded)
		_, err = l.TryAcquire(past)
		wantReason(t, err, DeadlineExceeded)
		ctx, cancel := context.WithDeadline(t.Context(), past.Deadline)
		defer cancel()
		_, err = l.Acquire(ctx, Task{})
		wantReason(t, err, DeadlineExceeded)
		if p, err := l.Acquire(t.Context(), Task{Deadline: time.Now().Add(time.Hour)}); err != nil || !p.Release() {
			t.Fatal(err)
		}
	})
}

// TestQ6_ManyInFlight has more tasks in flight than there are seats, and releases each of them twice, in both orders.
func TestQ6_ManyInFlight(t *testing.T) {
	const n = 50
	l := mustNew(t, Config{Initial: fixed(n)})
	for range 20 {
		var ps []Permit
		for i := range n {
			p, err := l.TryAcquire(named(i, 0))
			if err != nil {
				t.Fatal(err)
			}
			ps = append(ps, p)
		}
		_, err := l.TryAcquire(Task{})
		wantReason(t, err, QueueOverflow)
		for i, p := range ps {
			if e := p.Explain(); e.Task != named(i, 0) || e.InFlight != i+1 {
				t.Fatalf("%d is explained as %v", i, e)
			}
		}
		for i, p := range ps {
			if !p.Release() || p.Release() || ps[i/2].Release() {
				t.Fatal("each permit is released once")
			}
		}
	}
	if s := l.Stats(); s.Executed != 20*n || s.Running != 0 || s.Submitted != 20*(n+1) {
		t.Errorf("%+v", s)
	}
}

// TestQ8_NothingIsInterrupted runs a task through everything that could interrupt one.
func TestQ8_NothingIsInterrupted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type key struct{}
		l := mustNew(t, Config{Initial: fixed(1)})
		ctx := context.WithValue(t.Context(), key{}, 1)
		got, err := Do(ctx, l, Task{Deadline: time.Now().Add(time.Millisecond)}, func(in context.Context) (int, error) {
			if in != ctx {
				t.Error("another context")
			}
			l.Apply(decision.ControlDecision{Seq: 2, ValidFor: time.Millisecond})
			time.Sleep(time.Second)
			l.Close()
			return 7, in.Err()
		})
		if got != 7 || err != nil {
			t.Fatal(got, err)
		}
		if s := l.Stats(); s.Executed != 1 || s.Running != 0 {
			t.Fatalf("%+v", s)
		}
	})
}

// TestQ10_CutByRank overloads a limiter with a mix and looks at who is shed: the lowest, and of all as many as decided.
func TestQ10_CutByRank(t *testing.T) {
	const tasks = 20_000
	for _, shed := range []float64{0, 0.1, 0.3, 0.5, 0.9, 1} {
		rng := rand.New(rand.NewPCG(1, 2))
		l, p := occupied(t, Config{MaxQueue: 1, Rand: rng.Float64, Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 1, ShedProbability: shed}})
		mix := []Priority{Background, Background, Normal, Normal, Normal, High, High, High, High, Critical}
		total, refused := map[Priority]float64{}, map[Priority]float64{}
		sum := 0.0
		for range tasks {
			task := Task{Priority: mix[rng.IntN(len(mix))]}
			total[task.Priority]++
			// join is what Acquire asks; to wait would take a goroutine for each.
			l.mu.Lock()
			w := &waiter{task: task, due: never, ready: make(chan struct{}, 1)}
			v := l.join(w, l.draw())
			if w.inQueue {
				l.takeOut(w)
			}
			l.mu.Unlock()
			switch v.reason {
			case PressureHigh, ProbabilisticShedding:
				refused[task.Priority]++
				sum++
			case 0:
			default:
				t.Fatal(v.reason)
			}
		}
		if share := sum / tasks; share < shed-0.02 || share > shed+0.02 {
			t.Errorf("of %g to be shed, %g were", shed, share)
		}
		below := 0.0
		for _, c := range []struct {
			p     Priority
			share float64
		}{{Background, 0.2}, {Normal, 0.3}, {High, 0.4}, {Critical, 0.1}} {
			want := min(max(0, (shed-below)/c.share), 1)
			if got := refused[c.p] / total[c.p]; got < want-0.07 || got > want+0.07 {
				t.Errorf("shed %g: of %s, %.3f were refused, want %.3f", shed, c.p, got, want)
			}
			below += c.share
		}
		p.Release()
	}
}

// TestQ10_TheMixIsRecent changes the mix: the old one is forgotten, by count and by time.
func TestQ10_TheMixIsRecent(t *testing.T) {
	for name, forget := range map[string]func(*ranks){
		"by count": func(r *ranks) {
			for range 8 * fullMix {
				r.add(High, 0)
			}
		},
		"by time": func(r *ranks) { r.add(High, 12*halfLife); r.add(High, 12*halfLife) },
	} {
		var r ranks
		for range 1000 {
			r.add(Background, 0)
		}
		if p, _ := r.cut(0.5); p != Background {
			t.Fatalf("%s: cut at %s", name, p)
		}
		forget(&r)
		if p, part := r.cut(0.5); p != High || part < 0.3 {
			t.Errorf("%s: cut at %s, part %g", name, p, part)
		}
	}
	var r ranks
	for i := range 100_000 {
		r.add(Priority(i%256-128), time.Duration(i)*time.Millisecond)
		if r.total >= (fullMix+1)*unit {
			t.Fatal("the histogram grows without bound")
		}
	}
}

// TestQ11_FullQueue lets higher arrivals evict the youngest of the lowest, and nobody else.
func TestQ11_FullQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, p := occupied(t, Config{MaxQueue: 4})
		q := newLine(t, l)
		q.join(Task{Name: "b1", Priority: Background})
		q.join(Task{Name: "b2", Priority: Background})
		q.join(Task{Name: "n1"})
		q.join(Task{Name: "n2"})
		q.join(Task{Name: "b3", Priority: Background})
		q.wantRefused("b3", QueueOverflow)
		q.join(Task{Name: "n3"})
		q.wantRefused("b2", PriorityDrop)
		q.join(Task{Name: "h1", Priority: High})
		q.wantRefused("b1", PriorityDrop)
		q.join(Task{Name: "h2", Priority: High})
		q.wantRefused("n3", PriorityDrop)
		q.join(Task{Name: "n4"})
		q.wantRefused("n4", QueueOverflow)
		q.wantOrder(p, "h1", "h2", "n1", "n2")
	})
}

// TestQ13_Stale lets decisions run out: the Stale one rules, and is never higher; without one, the target is kept.
func TestQ13_Stale(t *testing.T) {
	const valid = 100 * time.Millisecond
	for _, c := range []struct {
		name   string
		stale  *decision.ControlDecision
		target int
	}{
		{"with a lower one", &decision.ControlDecision{TargetConcurrency: 2}, 2},
		{"with a higher one", &decision.ControlDecision{TargetConcurrency: 9}, 5},
		{"with none", nil, 5},
		{"with one that would expire too", &decision.ControlDecision{TargetConcurrency: 3, ValidFor: 1, Stale: &decision.ControlDecision{}}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := mustNew(t, Config{Initial: fixed(1)})
				standing := func() Standing {
					p, err := l.TryAcquire(Task{})
					if err != nil {
						t.Fatal(err)
					}
					defer p.Release()
					return p.Explain().Standing
				}
				if got := standing(); got != Initial {
					t.Errorf("before any decision: %s", got)
				}
				d := decision.ControlDecision{Seq: 2, TargetConcurrency: 5, ValidFor: valid, Stale: c.stale}
				l.Apply(d)
				sleep(valid)
				if got := standing(); got != Applied || l.Stats().Target != 5 {
					t.Errorf("while it is valid: %s, target %d", got, l.Stats().Target)
				}
				sleep(1)
				if got := standing(); got != Stale || l.Stats().Target != c.target {
					t.Errorf("afterwards: %s, target %d", got, l.Stats().Target)
				}
				sleep(time.Hour)
				if got := standing(); got != Stale || l.Stats().Target != c.target {
					t.Errorf("much later: %s, target %d", got, l.Stats().Target)
				}
				l.Apply(decision.ControlDecision{Seq: 1, TargetConcurrency: 50})
				if standing() != Stale {
					t.Error("an older decision renewed it")
				}
				d.Seq = 3
				l.Apply(d)
				sleep(valid / 2)
				l.Apply(d) // renewed: the first timer must not end it
				sleep(valid)
				if got := standing(); got != Applied || l.Stats().Target != 5 {
					t.Errorf("renewed: %s, target %d", got, l.Stats().Target)
				}
			})
		})
	}
	t.Run("a late timer", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			l := mustNew(t, Config{Initial: decision.ControlDecision{Seq: 1, TargetConcurrency: 5, ValidFor: valid, Stale: &decision.ControlDecision{}}})
			l.expiry.Stop()
			time.Sleep(valid + 1)
			_, err := l.Acquire(t.Context(), Task{Deadline: time.Now().Add(time.Hour)})
			if r := wantReason(t, err, PressureHigh); r.Explain().Standing != Stale {
				t.Errorf("%v", r)
			}
		})
	})
}

// TestQ14_NoStarvation keeps a queue full of important tasks: a background one starts only with StarvationEvery, in its turn,
// and is not evicted once it is spared.
func TestQ14_NoStarvation(t *testing.T) {
	for every, want := range map[int]int{0: 0, 1: 1, 4: 4} {
		bubble(t, func(t *testing.T) {
			l, p := occupied(t, Config{MaxQueue: 50, StarvationEvery: every, StandAfter: time.Hour})
			q := newLine(t, l)
			q.join(Task{Name: "background", Priority: Background})
			for i := range 20 {
				q.join(named(i, High))
			}
			order := append([]string{""}, q.drain(p)...)
			if every == 0 {
				want = 21
			}
			if order[want] != "background" {
				t.Errorf("every %d: started in order %v", every, order)
			}
		})
	}
	t.Run("the same share is spared", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			const every, queue, n = 10, 20, 400
			d := fixed(1)
			d.ShedProbability = 0.5
			l, p := occupied(t, Config{MaxQueue: queue, StarvationEvery: every, Initial: d, Rand: func() float64 { return 0.5 }})
			q := newLine(t, l)
			for i := range n {
				q.join(named(2*i, High))
				q.join(named(2*i+1, Background))
			}
			background := 0
			l.mu.Lock()
			for w := l.queue.all.lane[laneOf(Background)].oldest; w != nil; w = w.links[0].newer {
				background++
			}
			if background == 0 || l.queue.spared != queue/every || l.queue.waiting != queue {
				t.Errorf("%d wait, %d of them background, %d spared, want %d", l.queue.waiting, background, l.queue.spared, queue/every)
			}
			l.mu.Unlock()
			q.drain(p)
		})
	})
}
