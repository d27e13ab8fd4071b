// SPDX-License-Identifier: Apache-2.0

package leasenats

// OnError is called at once for a new failure and then once a minute, and for every lost partition. In virtual time.

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestGroupTellsOnceAMinute(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.join("a", 0)
		time.Sleep(session)
		for episode := range 2 {
			a.set(func() { a.away = true })
			time.Sleep(150 * time.Second)
			synctest.Wait()
			if want := 3 * (episode + 1); len(a.told) != want { // at 0, 1 and 2 minutes
				t.Errorf("told %d times, want %d: %v", len(a.told), want, a.told)
			}
			a.set(func() { a.away = false })
			time.Sleep(session)
		}
		w.stop(a)
	})
}

// A suspended process meets no error, but has lost its partitions.
func TestGroupTellsOfLosses(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.join("a", 0)
		time.Sleep(session)
		other := w.join("bb", 0)
		w.expect("two", session, "a", "bb")
		w.ends()
		thaw := w.freeze(a)
		time.Sleep(2 * session)
		thaw()
		time.Sleep(session)
		synctest.Wait()
		if _, lost := w.ends(); lost != 4 || len(a.told) != 1 || len(other.told) > 0 {
			t.Errorf("%d works lost, told: %v; the other: %v", lost, a.told, other.told)
		}
		w.stop(a, other)
	})
}
