// Being behind: a priority that cannot be served in full keeps only those who will be served soon.

package limiter

import "time"

// A priority is behind once its oldest has waited for so long that, served in order, all would be answered late: half of
// the time that it had, and at most longestPatience. That much is also the longest wait to be allowed at first, and from
// then on a quarter of the time that has passed since is taken off, down to fresh.
//
// It is behind no longer when a lower priority is granted a place, because then nobody of it waited; or when no more than one in
// turnedAway of those that came in a time checkEvery was refused for it.
const (
	longestPatience = time.Second
	fresh           = 20 * time.Millisecond
	checkEvery      = 500 * time.Millisecond
	turnedAway      = 10
)

// arrears say which priorities, by lane, are behind, and since when.
type arrears struct {
	which [4]uint64 // a bit for each that is
	of    [256]struct {
		since, check  time.Duration // when it began, and when it is looked at next whether it goes on
		longest       time.Duration // wait to be allowed in the beginning
		came, refused int           // since it was looked at last
	}
}

func (a *arrears) has(i int) bool { return a.which[i/64]>>(i%64)&1 != 0 }
func (a *arrears) set(i int)      { a.which[i/64] |= 1 << (i % 64) }
func (a *arrears) clear(i int)    { a.which[i/64] &^= 1 << (i % 64) }

func (a *arrears) clearAbove(i int) {
	a.which[i/64] &= 1<<(i%64+1) - 1
	for k := i/64 + 1; k < len(a.which); k++ {
		a.which[k] = 0
	}
}

// behind is whether the priority of lane i is behind, and the longest wait that is to be allowed then.
func (q *queue) behind(i int, now time.Duration) (longest time.Duration, behind bool) {
	a := &q.arrears.of[i]
	if q.arrears.has(i) && now >= a.check {
		if a.refused*turnedAway <= a.came || now >= a.check+checkEvery {
			q.arrears.clear(i)
		}
		a.check, a.came, a.refused = now+checkEvery, 0, 0
	}
	if w := q.all.lane[i].oldest; w != nil && !q.arrears.has(i) {
		patience := q.patience
		if patience == 0 {
			patience = min((w.due-w.since)/2, longestPatience)
		}
		if now-w.since > patience {
			q.arrears.set(i)
			a.since, a.check, a.longest, a.came, a.refused = now, now+checkEvery, patience, 0, 0
		}
	}
	return max(min(fresh, a.longest), a.longest-(now-a.since)/4), q.arrears.has(i)
}

// turnAway is whether a task of lane i, which would have to wait, is refused because its priority is behind and enough of it
// wait already: more would not be granted places in time. Those who have waited too long make room.
func (l *Limiter) turnAway(i int, now time.Duration) bool {
	q := l.queue
	longest, behind := q.behind(i, now)
	if !behind {
		return false
	}
	lane, a := &q.all.lane[i], &q.arrears.of[i]
	a.came++
	for w := lane.oldest; w != nil && !w.spared && now-w.since > longest; w = lane.oldest {
		if q.mercy(l.maxQueue) {
			q.spare(w)
			break
		}
		a.refused++
		l.dismiss(w, QueueOverflow, now, 0)
	}
	if lane.waiting == 0 || time.Duration(q.all.from(i)+1)*q.gap <= longest {
		return false
	}
	a.refused++
	return true
}
