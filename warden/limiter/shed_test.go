// SPDX-License-Identifier: Apache-2.0

// Who is rejected when not all can be served: a full queue, and mercy (Q11, Q14). Shedding by rank (Q10) is in internal/queue.

package limiter

import (
	"strconv"
	"testing"
	"time"

	"github.com/stopbank/stopbank/warden/decision"
)

// TestFullQueue lets higher arrivals evict the youngest of the lowest, and nobody else.
func TestFullQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, p := occupied(t, Config{MaxQueue: 4})
		q := newLine(t, l)
		q.join(Task{Name: "b1", Priority: decision.Background})
		q.join(Task{Name: "b2", Priority: decision.Background})
		q.join(Task{Name: "n1"})
		q.join(Task{Name: "n2"})
		q.join(Task{Name: "b3", Priority: decision.Background})
		q.wantRejected("b3", decision.QueueOverflow)
		q.join(Task{Name: "n3"})
		q.wantRejected("b2", decision.PriorityDrop)
		q.join(Task{Name: "h1", Priority: decision.High})
		q.wantRejected("b1", decision.PriorityDrop)
		q.join(Task{Name: "h2", Priority: decision.High})
		q.wantRejected("n3", decision.PriorityDrop)
		q.join(Task{Name: "n4"})
		q.wantRejected("n4", decision.QueueOverflow)
		q.wantOrder(p, "h1", "h2", "n1", "n2")
	})
}

// TestNoStarvation keeps a queue full of important tasks: a background one starts only with StarvationEvery, in its turn,
// and is not evicted once it is spared.
func TestNoStarvation(t *testing.T) {
	for every, want := range map[int]int{0: 0, 1: 1, 4: 4} {
		bubble(t, func(t *testing.T) {
			l, p := occupied(t, Config{MaxQueue: 50, StarvationEvery: every, Initial: decisionState(1, time.Hour)})
			q := newLine(t, l)
			q.join(Task{Name: "background", Priority: decision.Background})
			for i := range 20 {
				q.join(named(i, decision.High))
			}
			order := append([]string{""}, q.drain(p)...)
			if every == 0 {
				want = 21
			}
			if order[want] != "background" {
				t.Errorf("Q14: every %d: started in order %v", every, order)
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
				q.join(named(2*i, decision.High))
				q.join(named(2*i+1, decision.Background))
			}
			if s := l.Stats(); s.Queued != queue {
				t.Errorf("Q14: %d wait", s.Queued)
			}
			background := 0
			for _, name := range q.drain(p) {
				if i, _ := strconv.Atoi(name); i%2 == 1 {
					background++
				}
			}
			if background == 0 || background > queue/every {
				t.Errorf("Q14: %d started of the background, want 1 to %d", background, queue/every)
			}
		})
	})
}
