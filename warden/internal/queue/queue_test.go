// SPDX-License-Identifier: Apache-2.0

// The order and the bounds of a queue, without an owner: the mix of priorities, and what is remembered.

package queue

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

func newQueue(limit int) *Queue[int] {
	return &Queue[int]{Limit: limit, Left: func(w *Waiter[int], _ Result, _ time.Duration) { w.Wake() }}
}

func waiter(priority int8) *Waiter[int] {
	w := new(Pool[int]).Get()
	w.Priority, w.Due = priority, Never
	return w
}

// TestCutByRank overloads a queue with a mix and looks at who is shed: the lowest, and of all as many as decided.
func TestCutByRank(t *testing.T) {
	const tasks, background, normal, high, critical = 20_000, -64, 0, 64, 127
	mix := []int8{background, background, normal, normal, normal, high, high, high, high, critical}
	for _, share := range []float64{0, 0.1, 0.3, 0.5, 0.9, 1} {
		rng := rand.New(rand.NewPCG(1, 2))
		q := newQueue(2)
		if v := q.Offer(waiter(highest), 0, Rule{}, 0); v != Waits { // where nobody waits, nobody is shed
			t.Fatal(v)
		}
		total, rejected, sum := map[int8]float64{}, map[int8]float64{}, 0.0
		for range tasks {
			w := waiter(mix[rng.IntN(len(mix))])
			total[w.Priority]++
			switch v := q.Offer(w, time.Second, Rule{Share: share}, rng.Float64()); v {
			case Shed, ShedInPart:
				rejected[w.Priority]++
				sum++
			case Waits:
				q.Remove(w)
			default:
				t.Fatal(v)
			}
		}
		if got := sum / tasks; got < share-0.02 || got > share+0.02 {
			t.Errorf("Q10: of %g to be shed, %g were", share, got)
		}
		below := 0.0
		for _, c := range []struct {
			priority int8
			part     float64
		}{{background, 0.2}, {normal, 0.3}, {high, 0.4}, {critical, 0.1}} {
			want := min(max(0, (share-below)/c.part), 1)
			if got := rejected[c.priority] / total[c.priority]; got < want-0.07 || got > want+0.07 {
				t.Errorf("Q10: share %g: of %d, %.3f were rejected, want %.3f", share, c.priority, got, want)
			}
			below += c.part
		}
	}
}

// Nobody is shed where nobody waits, no critical task in a burst, and none at random while a less important one waits.
func TestWhoIsNotShed(t *testing.T) {
	const low, normal = -64, 0
	most, all := Rule{Share: 0.9}, Rule{Share: 1}
	for name, c := range map[string]struct {
		waiting  []int8
		priority int8
		after    time.Duration
		rule     Rule
		want     Result
		left     int8 // who left in its place; 1: nobody
	}{
		"nobody waits":                  {nil, normal, time.Second, most, Waits, 1},
		"all are shed":                  {nil, highest, time.Second, all, Shed, 1},
		"another waits":                 {[]int8{normal}, normal, time.Second, all, Shed, 1},
		"by chance":                     {[]int8{normal}, normal, time.Second, most, ShedInPart, 1},
		"a less important one waits":    {[]int8{normal, low}, normal, time.Second, most, Waits, low},
		"a more important one waits":    {[]int8{highest}, normal, time.Second, most, ShedInPart, 1},
		"a burst of critical tasks":     {[]int8{highest}, highest, time.Millisecond, most, Waits, 1},
		"more critical ones than serve": {[]int8{highest}, highest, time.Second, most, ShedInPart, 1},
		"critical, by chance":           {[]int8{highest, low}, highest, time.Second, most, Waits, low},
	} {
		q, left := newQueue(8), int8(1)
		q.Left = func(w *Waiter[int], why Result, _ time.Duration) {
			if left = w.Priority; why != Shed {
				t.Errorf("Q10: %s: %d left for reason %d", name, left, why)
			}
		}
		for _, p := range c.waiting {
			if v := q.Offer(waiter(p), 0, Rule{}, 0); v != Waits {
				t.Fatal(v)
			}
		}
		c.rule.Burst = 25 * time.Millisecond
		for range 20 { // that the mix has as many as need be of this priority
			q.count(q.laneOf(c.priority), 0)
		}
		if v := q.Offer(waiter(c.priority), c.after, c.rule, 0.01); v != c.want || left != c.left {
			t.Errorf("Q10: %s: result %d, and %d left; want %d, %d", name, v, left, c.want, c.left)
		}
	}
}

// TestTheMixIsRecent changes the mix: the old one is forgotten, by count and by time.
func TestTheMixIsRecent(t *testing.T) {
	const background, high = -64, 64
	add := func(q *Queue[int], priority int8, now time.Duration) { q.count(q.laneOf(priority), now) }
	for name, forget := range map[string]func(*Queue[int]){
		"by count": func(q *Queue[int]) {
			for range 8 * fullMix {
				add(q, high, 0)
			}
		},
		"by time": func(q *Queue[int]) { add(q, high, 12*halfLife); add(q, high, 12*halfLife) },
	} {
		q := newQueue(1)
		for range 1000 {
			add(q, background, 0)
		}
		if p, _ := q.Cut(0.5); p != background {
			t.Fatalf("Q10: %s: cut at %d", name, p)
		}
		forget(q)
		if p, part := q.Cut(0.5); p != high || part < 0.3 {
			t.Errorf("Q10: %s: cut at %d, part %g", name, p, part)
		}
	}
	q := newQueue(1)
	for i := range 100_000 {
		add(q, int8(i%256-128), time.Duration(i)*time.Millisecond)
		if q.mix > fullMix+1 {
			t.Fatal("Q10: the mix grows without bound")
		}
	}
}

// TestRecent keeps the last of any number.
func TestRecent(t *testing.T) {
	r := NewRecent[int](3)
	for n, want := range []string{"[]", "[0]", "[0 1]", "[0 1 2]", "[1 2 3]", "[2 3 4]", "[3 4 5]", "[4 5 6]"} {
		if got := fmt.Sprint(r.All()); got != want {
			t.Errorf("after %d: %s, want %s", n, got, want)
		}
		r.Add(n)
	}
}
