// Closing a gate, and waiting until it is empty.

package admission

import "context"

// Close refuses all later admissions with [Closed], for ever. What is in flight is not touched. Closing twice is the same
// as closing once. Close does not wait for what is in flight; [Gate.Drain] does.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.central.Load()&closed != 0 {
		return
	}
	g.refusals[Closed] = RejectedError{Gate: g.label, Reason: Closed, Limit: g.limit} // the zero Gate has none yet
	g.gather()
	g.central.Or(closed)
}

// Drain blocks until nothing is in flight, and then returns nil, or until ctx ends, and then returns ctx's error. On an
// open gate others may be admitted at any time, before Drain returns too; after Close, nothing in flight stays so.
// A nil ctx never ends. Drain starts no goroutine and does not poll.
func (g *Gate) Drain(ctx context.Context) error {
	empty, wait := g.wait()
	if !wait {
		return nil
	}
	var done <-chan struct{}
	if ctx != nil {
		done = ctx.Done()
	}
	select {
	case <-empty:
		return nil
	case <-done:
	}
	if g.unwait(empty) {
		return ctx.Err()
	}
	return nil
}

// wait registers a waiter unless nothing is in flight now. Every release after the flag is up goes through putDraining,
// so the one that empties the gate sees all waiters, and each waiter sees it.
func (g *Gate) wait() (empty chan struct{}, wait bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gather()
	if g.central.Or(draining)&credits == g.total {
		g.stopDraining()
		return nil, false
	}
	empty = make(chan struct{})
	g.waiters = append(g.waiters, empty)
	return empty, true
}

// unwait withdraws a waiter; false: the gate has been empty meanwhile.
func (g *Gate) unwait(empty chan struct{}) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, w := range g.waiters {
		if w == empty {
			g.waiters = append(g.waiters[:i], g.waiters[i+1:]...)
			g.stopDraining()
			return true
		}
	}
	return false
}

// stopDraining lowers the flag if nobody waits. The caller holds g.mu.
func (g *Gate) stopDraining() {
	if len(g.waiters) == 0 {
		g.waiters = nil
		g.central.And(^uint64(draining))
	}
}

// putDraining is putCentral while somebody waits for the gate to be empty (A10).
func (g *Gate) putDraining() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.central.Add(1)&credits != g.total {
		return
	}
	for _, w := range g.waiters {
		close(w)
	}
	g.waiters = nil
	g.stopDraining()
}
