// SPDX-License-Identifier: Apache-2.0

// What an engine remembers between calls: the latest state of the domains that were used last, and whose turn it is.

package durable

import (
	"container/list"
	"context"
	"sync"
)

// entry is one domain in memory. It is the same for everybody who has or awaits its turn: it leaves the cache only when
// nobody does (L6).
type entry struct {
	name string
	// turn is full while a call works on the domain. It makes the calls of this process on one domain follow each other, so that
	// they need not conflict. It is no lock: it is given up with ctx, and other domains know nothing of it.
	turn    chan struct{}
	users   int           // guarded by cache.mu: calls that have or await the turn
	element *list.Element // guarded by cache.mu: in cache.idle, nil while there are users

	// With the turn only:
	rec     *record // what the store holds as far as is known; nil: it has to be read
	version uint64  // rec's
	seen    uint64  // the greatest version that is known to have been there
}

// keep notes what the store holds.
func (e *entry) keep(rec *record, version uint64) {
	e.rec, e.version, e.seen = rec, version, max(e.seen, version)
}

// take returns the state in memory and forgets it, so that whoever fails, or panics, with a state half changed leaves none
// behind.
func (e *entry) take() (*record, uint64) {
	rec := e.rec
	e.rec = nil
	return rec, e.version
}

type cache struct {
	// mu guards all of it. It is held for some map and list accesses, never in a Store call and never while awaiting a turn.
	mu      sync.Mutex
	entries map[string]*entry
	idle    list.List // entries without users, used last first
	max     int       // of idle
}

// enter awaits the turn in a domain. Error: ctx's.
func (c *cache) enter(ctx context.Context, name string) (*entry, error) {
	c.mu.Lock()
	e := c.entries[name]
	if e == nil {
		e = &entry{name: name, turn: make(chan struct{}, 1)}
		c.entries[name] = e
	}
	if e.element != nil {
		c.idle.Remove(e.element)
		e.element = nil
	}
	e.users++
	c.mu.Unlock()
	select {
	case e.turn <- struct{}{}:
		return e, nil
	case <-ctx.Done():
		c.release(e)
		return nil, ctx.Err()
	}
}

// leave passes the turn on.
func (c *cache) leave(e *entry) {
	<-e.turn
	c.release(e)
}

func (c *cache) release(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.users--; e.users > 0 {
		return
	}
	e.element = c.idle.PushFront(e)
	for c.idle.Len() > c.max {
		oldest := c.idle.Remove(c.idle.Back()).(*entry)
		delete(c.entries, oldest.name)
	}
}
