// Who is refused when not all can be served: shedding by rank, a full queue, and mercy (Q10, Q11, Q14).

package limiter

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

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
