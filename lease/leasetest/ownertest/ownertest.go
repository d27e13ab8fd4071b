// Package ownertest is the contract of dispatch.Ownership as a test suite: whoever brings a group protocol runs it and knows.
//
//	func TestOwnership(t *testing.T) {
//		ownertest.Run(t, func(t testing.TB, partitions int) ownertest.Group { … })
//	}
//
// Members come, leave, are cut off and come back, while the suite watches who works on what: never two calls of work for one partition in
// one member, never two members on one partition unless the first has lost it, every partition held as soon as things are quiet. Then
// Consumers do the same with records, also while the program is replaced by another version of it, and the effects are counted. [Torture] has all of that happen by chance, to members in processes of their
// own too.
package ownertest

import (
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// Group is one group of the engine under test, with members to come.
type Group struct {
	// Partitions are their names, as Hold hands them out.
	Partitions []string
	// Append writes a record to a partition. The Source of the partition reads it under this domain.
	Append func(partition, domain string, payload []byte)
	// Join returns one more member, whose Hold has not been called.
	Join func() Member
	// JoinOld is Join for a program of the version before, as far as a deployment has both at a time: it reads what the newer one writes, and
	// writes what it always wrote (durable.Config.OldReaders).
	JoinOld func() Member

	// What follows is for Torture alone.

	// Lease is the time after which a member that is cut off loses its partitions.
	Lease time.Duration
	// Behind returns the partitions whose committed floor is not at the end of their log, without claiming any.
	Behind func() ([]string, error)
	// Process is what Child's join takes to make a member of this group in a process of its own. "": no processes.
	Process string
	// Restart ends the server and starts it again where it was. nil: the server is left alone.
	Restart func() error
}

// Member is one member of a group, as a process of its own would be one.
type Member struct {
	dispatch.Ownership
	// Cut cuts the member off: from now on the engine hears nothing of it, and it nothing of the engine, though nothing is closed. That is
	// what a process that is stopped, or has crashed without a word, is to the others. Mend undoes it.
	Cut, Mend func()
}

// Open returns a new Group with that many partitions, apart from all others, or ends the test. What has to be closed it closes with
// t.Cleanup. The time after which a member that is cut off loses its partitions should be a second or less.
type Open func(t testing.TB, partitions int) Group

// patience bounds how long the suite waits for what has to come.
const patience = time.Minute

// check is one test of the suite: it needs no more than a testing.TB, so that a test of the suite can watch it fail.
type check struct {
	name string
	run  func(t testing.TB, open Open)
}

// Run runs the whole suite, each part under its own name. It takes some of the engine's time-outs for each.
func Run(t *testing.T, open Open) {
	t.Helper()
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) { c.run(t, open) })
	}
}

func checks() []check {
	return append(moves(), check{"Records", records}, check{"Zombie", zombie}, check{"Upgrade", upgrade})
}
