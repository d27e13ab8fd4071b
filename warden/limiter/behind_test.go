// A priority that is behind: what it keeps, whom it refuses, and when that ends.

package limiter

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestQ4_Behind keeps order until the oldest has waited half of its time, and turns it from then on.
func TestQ4_Behind(t *testing.T) {
	for _, c := range []struct {
		name string
		wait time.Duration
		want []string
	}{{"half of its time", 100 * time.Millisecond, []string{"1", "2"}}, {"more", 101 * time.Millisecond, []string{"2", "1"}}} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l, p := occupied(t, Config{})
				q := newLine(t, l)
				q.join(Task{Name: "1", Deadline: time.Now().Add(200 * time.Millisecond)})
				q.join(Task{Name: "2", Deadline: time.Now().Add(time.Second)})
				sleep(c.wait)
				q.wantOrder(p, c.want...)
			})
		})
	}
}

// TestQ11_Behind has a priority that is behind keep only those who will get places soon, whatever room there is; another one
// loses nobody.
func TestQ11_Behind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, p := occupied(t, Config{})
		q := newLine(t, l)
		soon := func(name string, p Priority) Task {
			return Task{Name: name, Priority: p, Deadline: time.Now().Add(200 * time.Millisecond)}
		}
		for _, name := range []string{"1", "2", "3"} {
			q.join(soon(name, Normal))
		}
		sleep(101 * time.Millisecond)
		q.join(soon("first after", Normal))
		for _, name := range []string{"1", "2", "3"} {
			q.wantRefused(name, QueueOverflow)
		}
		// Grants every 8 ms: two get places within 20 ms, a third does not.
		release := p
		for range 40 {
			q.join(soon("c", Critical))
			sleep(8 * time.Millisecond)
			release.Release()
			synctest.Wait()
			release = q.permits["c"]
		}
		q.join(soon("second", Normal)) // takes the place of one that died meanwhile
		q.join(soon("third", Normal))
		q.join(soon("fourth", Normal))
		if q.refusal("second") != nil || q.refusal("third") != nil {
			t.Error("one of those who could be served soon was refused")
		}
		if r := q.wantRefused("fourth", QueueOverflow); r != nil && r.Waited != 0 {
			t.Errorf("refused after %v", r.Waited)
		}
		q.join(soon("other", High))
		q.join(soon("another", High))
		q.join(soon("yet another", High))
		for _, name := range []string{"other", "another", "yet another"} {
			if q.refusal(name) != nil {
				t.Errorf("%s was refused, whose priority is not behind", name)
			}
		}
	})
}

// TestQ11_BehindEnds brings a priority behind and out of it again: by few refusals, by silence, by a grant to a lower one.
func TestQ11_BehindEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(q *line, grants func(n int, p Priority))
		ends bool
	}{
		{"nothing", func(_ *line, grants func(int, Priority)) { grants(8, Normal) }, false},
		{"few were refused", func(_ *line, grants func(int, Priority)) { grants(80, Normal) }, true},
		{"nobody came", func(_ *line, grants func(int, Priority)) {
			sleep(500 * time.Millisecond)
			grants(80, Critical)
		}, true},
		{"a lower one was granted", func(_ *line, grants func(int, Priority)) {
			grants(8, Normal)
			grants(1, Background)
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l, p := occupied(t, Config{MaxQueue: 100})
				q := newLine(t, l)
				n := 0
				grants := func(times int, priority Priority) {
					for range times {
						n++
						name := fmt.Sprint("grant ", n)
						q.join(Task{Name: name, Priority: priority})
						sleep(8 * time.Millisecond)
						p.Release()
						synctest.Wait()
						p = q.permits[name]
					}
				}
				grants(40, Critical) // a pace
				q.join(Task{Name: "old", Deadline: time.Now().Add(200 * time.Millisecond)})
				sleep(101 * time.Millisecond)
				q.join(Task{Name: "new"})
				q.wantRefused("old", QueueOverflow)
				p.Release()
				synctest.Wait()
				p = q.permits["new"]
				c.then(q, grants)
				refused := 0
				for i := range 20 {
					name := fmt.Sprint("test ", i)
					q.join(Task{Name: name})
					if q.refusal(name) != nil {
						refused++
					}
				}
				if (refused == 0) != c.ends {
					t.Errorf("%d of 20 were refused", refused)
				}
			})
		})
	}
}
