// SPDX-License-Identifier: Apache-2.0

// Package ownertest is the contract of dispatch.Ownership, and of a dispatch.Source ([MadeAnew]), as a test suite for
// the engines of this module.
//
//	func TestOwnership(t *testing.T) {
//		ownertest.Run(t, func(t testing.TB, partitions int) ownertest.Group { … })
//	}
//
// Members join, leave, are cut off and return, while the suite checks who works on which partition: never two calls of work
// for one partition in one member, never two members on one partition unless the first has lost it, and every partition held
// once the group is at rest. [Torture] has Consumers process records while the same happens at random, also to members in processes of
// their own, and counts the effects.
package ownertest

import (
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// Group is one group of the engine under test.
type Group struct {
	// Partitions are the names that Hold hands out.
	Partitions []string
	// Append writes a record to a partition, whose Source reads it under this domain.
	Append func(partition, domain string, payload []byte)
	// Join returns another member, whose Hold has not been called.
	Join func() Member

	// Only Torture needs the fields below.

	// Lease is the time after which a member that is cut off loses its partitions.
	Lease time.Duration
	// HandOver is how long the group may take until somebody works on a partition again whose holder is gone. 0: two leases.
	HandOver time.Duration
	// Behind returns the partitions whose committed floor is not at the end of their log, without claiming any.
	Behind func() ([]string, error)
	// Process is the argument of Child's join for a member of this group in a process of its own. "": no processes.
	Process string
	// Restart crashes the server and starts it again at the same address. nil: the server is not restarted.
	Restart func() error
}

// Member is one member of a group, equivalent to a process.
type Member struct {
	dispatch.Ownership
	// Cut cuts the member off: from now on the engine and the member receive nothing from each other, though no connection is
	// closed. To the others it looks like a stopped or crashed process. Mend undoes it.
	Cut, Mend func()

	// Only Torture needs the fields below.

	// Line is the member's network. Nil: it is never late or slow, and loses nothing.
	Line *Line
	// Close is called when Hold has returned. Nil: there is nothing to close.
	Close func()
}

// Open returns a new Group with that many partitions, separate from all others, or ends the test. Close resources with t.Cleanup.
// The time after which a member that is cut off loses its partitions should be at most a second.
type Open func(t testing.TB, partitions int) Group

// patience bounds the suite's waits.
const patience = time.Minute

// poll calls over until it is true, or patience has ended: it reports which. An engine sends no event when it has come to rest.
func poll(over func() bool) bool {
	for began := time.Now(); !over(); {
		waited := time.Since(began)
		if waited > patience {
			return false
		}
		time.Sleep(2*time.Millisecond + waited/50)
	}
	return true
}

// check is one test of the suite, on a group of so many partitions. It needs only a testing.TB, so a test of the suite can watch it
// fail.
type check struct {
	name       string
	partitions int
	play       func(*team)
}

func (c check) run(t testing.TB, open Open) {
	t.Helper()
	g := newTeam(t, open, c.partitions)
	defer g.end()
	c.play(g)
}

// Run runs the whole suite, each part under its own name. Each part takes a few of the engine's timeouts.
func Run(t *testing.T, open Open) {
	t.Helper()
	RunIn(t, inRealTime, open)
}

// RunIn is Run with each part inside within: synctest.Test, for an engine whose network is in memory too.
func RunIn(t *testing.T, within func(t *testing.T, part func(t *testing.T)), open Open) {
	t.Helper()
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			within(t, func(t *testing.T) { c.run(t, open) })
		})
	}
}

func inRealTime(t *testing.T, part func(t *testing.T)) { part(t) }

func checks() []check { return append(moves(), check{"Zombie", 2, zombie}) }
