// SPDX-License-Identifier: Apache-2.0

// Partitions that move: members join, leave, release slowly, are cut off, and return.

package ownertest

import "time"

func moves() []check {
	return []check{
		{"JoinsAndLeaves", 6, func(g *team) {
			a := g.join(nil)
			g.settled(a)
			b := g.join(nil)
			g.settled(a, b)
			c, d := g.join(nil), g.join(nil)
			g.settled(a, b, c, d)
			a.leave()
			g.settled(b, c, d)
			b.cancel()
			c.leave()
			b.leave()
			g.settled(d)
			d.leave()
			g.settled(g.join(nil)) // the group still works for a later member
		}},
		{"MoreMembersThanPartitions", 1, func(g *team) {
			a := g.join(nil)
			g.settled(a)
			b := g.join(nil)
			for range 20 { // long enough to notice a partition that moves back and forth
				time.Sleep(10 * time.Millisecond)
			}
			holder := func() (m *member) {
				g.eventually("one holder", func() bool {
					switch {
					case len(a.holdsLocked()) == 1 && len(b.works) == 0:
						m = a
					case len(b.holdsLocked()) == 1 && len(a.works) == 0:
						m = b
					}
					return m != nil
				})
				return m
			}
			m := holder()
			m.leave()
			if other := holder(); other == m {
				g.Errorf("%s holds the partition after it has left", m.name)
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			first := g.group.Partitions[0]
			if n := a.begun[first] + b.begun[first] - a.lost - b.lost; n > 4 { // a slow machine loses some
				g.Errorf("the one partition was begun %d times without a loss before it", n)
			}
		}},
		// A partition that is given back waits for its work to end; the others continue meanwhile.
		{"GiveBackWaits", 6, func(g *team) {
			a := g.join(func(m *member) { m.linger = make(chan struct{}) })
			g.settled(a)
			b := g.join(nil)
			g.eventually("a partition is asked back", func() bool { return len(a.holdsLocked()) < len(a.works) })
			for range 30 { // time for a member that does not wait
				time.Sleep(10 * time.Millisecond)
			}
			g.mu.Lock()
			if a.askedLocked() == len(a.works) {
				g.Errorf("every partition of %s was asked back for one more member", a.name)
			}
			g.mu.Unlock()
			a.release()
			g.settled(a, b)
		}},
		{"LeavingWaits", 4, func(g *team) {
			a := g.join(func(m *member) { m.linger = make(chan struct{}) })
			g.settled(a)
			b := g.join(func(m *member) { m.linger = make(chan struct{}) })
			a.cancel()
			g.eventually("all partitions are asked back", func() bool { return len(a.holdsLocked()) == 0 && len(a.works) > 0 })
			for range 30 { // time for a member that does not wait
				time.Sleep(10 * time.Millisecond)
			}
			a.release()
			g.settled(b)
			b.release()
		}},
		// Work that returns early gives its partition back, and a member gets it again.
		{"WorkReturns", 3, func(g *team) {
			a := g.join(func(m *member) { m.brief = g.group.Partitions[1] })
			g.settled(a)
			g.mu.Lock()
			defer g.mu.Unlock()
			if a.begun[a.brief] < 2 {
				g.Errorf("%s was begun %d times", a.brief, a.begun[a.brief])
			}
		}},
		// A member that disappears without notice loses everything, and knows it by its own clock.
		{"CutOff", 4, func(g *team) {
			a := g.join(nil)
			g.settled(a)
			b := g.join(nil)
			g.settled(a, b)
			a.cutOff()
			g.settled(b)
			g.mu.Lock()
			defer g.mu.Unlock()
			if a.lost < 2 { // more if the machine was slow before
				g.Errorf("%d works of the member that was cut off ended with ErrLost, want 2", a.lost)
			}
		}},
		// If work does not return when its partition is lost, another member starts work on it meanwhile, but the same member
		// does not.
		{"CutOffWhileWorkLingers", 3, func(g *team) {
			a := g.join(func(m *member) { m.linger = make(chan struct{}) })
			g.settled(a)
			a.cutOff()
			b := g.join(nil)
			g.eventually("the other one has all", func() bool { return len(b.holdsLocked()) == 3 && len(a.holdsLocked()) == 0 })
			a.mend()
			for range 30 { // time for a member that starts again
				time.Sleep(10 * time.Millisecond)
			}
			a.release()
			g.settled(a, b)
		}},
		{"LeavesWhileCutOff", 4, func(g *team) {
			a, b := g.join(nil), g.join(nil)
			g.settled(a, b)
			a.cutOff()
			a.leave()
			g.settled(b)
		}},
	}
}
