// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file makes room where domains rest, such as those that wait for a late retry: of their records only the one in work stays
// buffered, and the others are deferred. So a stuck domain costs one record where there is no room for more (D5).

import "time"

// rest is the pause from which on a domain gives its room to others. Shorter ones are not worth reading its records again.
const rest = time.Second

// restLocked takes note of a domain that rests with more than a record, and wakes the fetch loop if its room is needed.
func (d *Dispatcher) restLocked(dom *domain) {
	if !dom.rests() || len(dom.queue) < 2 {
		return
	}
	d.resting[dom] = true
	if d.paused {
		d.signalRoom()
	}
	if dom.owner.deferred.set && d.cancelFetch != nil {
		d.cancelFetch()
	}
}

// shedLocked defers what domains that rest do not need meanwhile.
func (d *Dispatcher) shedLocked() {
	for dom := range d.resting {
		delete(d.resting, dom)
		if !dom.rests() {
			continue
		}
		keep, least := len(dom.queue), max(1, dom.find(dom.lease.Offset)+1)
		for keep > least && dom.queue[keep-1].known == unknown {
			keep--
		}
		if n := len(dom.queue) - keep; n > 0 {
			dom.deferred = mark{true, dom.queue[keep].Offset}
			room := 0
			for _, i := range dom.queue[keep:] {
				room += i.room
			}
			clear(dom.queue[keep:])
			dom.queue, dom.room = dom.queue[:keep], dom.room-room
			d.freeLocked(dom, n, room)
			d.watchLocked(dom)
		}
	}
}
