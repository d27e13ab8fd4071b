// SPDX-License-Identifier: Apache-2.0

// The progress of keys after the last fault: how long a key with records waits until a handler is called for it.

package ownertest

import (
	"fmt"
	"time"
)

// progress measures one rest. Its clock counts while the server is up, this machine keeps pace, and no handler takes its
// time: it may have the slots, or the one trial that suspects have at a time.
type progress struct {
	clock   time.Duration
	looked  time.Time
	waiting map[*lane]wait
	faults  int32 // so far; each is the last one anew
}

// pace is the longest that this machine takes between two looks when it is not too busy.
const pace = 10 * time.Millisecond

// wait is since when a lane that is not done has had so many attempts.
type wait struct {
	attempts int
	since    time.Duration
}

// look returns the key that waits longest, and for how long.
func (p *progress) look(w *torture) (longest time.Duration, which string) {
	a := w.account
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if w.server.TryRLock() { // it is up
		w.server.RUnlock()
		if since := now.Sub(p.looked); since <= pace && now.After(a.slow) {
			p.clock += since
		}
	}
	p.looked = now
	if faults := w.faults.Load(); p.waiting == nil || p.faults != faults {
		p.waiting, p.faults = map[*lane]wait{}, faults
	}
	for _, l := range a.lanes {
		switch before, known := p.waiting[l]; {
		case l.next == l.length:
			delete(p.waiting, l)
		case !known || before.attempts != l.attempts:
			p.waiting[l] = wait{l.attempts, p.clock}
		case p.clock-before.since > longest:
			longest, which = p.clock-before.since, fmt.Sprintf("%s, number %d of %d", l.name, l.next, l.length)
		}
	}
	return longest, which
}
