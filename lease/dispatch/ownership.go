// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file is the interface of group membership: which process has which partition.

import (
	"context"
	"fmt"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/internal/nilcheck"
)

// Partition is one partition: its log and its ledger, which are required unless Open returns them.
type Partition struct {
	// Name appears in events, stats, errors and dead letters. It is unique among the partitions of a group, which brings it
	// along; without a group it may be empty, but deadletter.Keep requires one.
	Name   string
	Source Source
	Ledger lease.Ledger
	// Open, if not nil, returns Source and Ledger, which must be nil then. An Ownership sets it for a partition that is
	// assigned and cannot be opened yet: the partition is held, it is Stalled (unopened) once Open has not succeeded for
	// AttemptTimeout or more, and each error is an event (TakeFailed). Open is called again after pauses up to 5 s, by one
	// goroutine. It must return when its ctx ends: the partition is to be given back.
	Open func(ctx context.Context) (Source, lease.Ledger, error)
}

// check reports what the partition lacks.
func (p Partition) check() error {
	name := ""
	if p.Name != "" {
		name = fmt.Sprintf(", of %q", p.Name)
	}
	if p.Open != nil {
		if p.Source != nil || p.Ledger != nil {
			return invalidField("Partition.Open", "set"+name, "nil beside a Source or a Ledger")
		}
		return nil
	}
	if missing := nilcheck.Required(p.Ledger); missing != "" {
		return invalidField("Partition.Ledger", missing+name, "a ledger")
	}
	if missing := nilcheck.Required(p.Source); missing != "" {
		return invalidField("Partition.Source", missing+name, "a source")
	}
	return nil
}

// Ownership is membership of a group that shares partitions out: Kafka's consumer groups (leasekafka), a record in a
// JetStream bucket (leasenats), advisory locks of PostgreSQL (leasepg). It says who should work where, and need not be
// exact: the fencing tokens of the ledger protect the records. A member may go on for a while after its partition was
// assigned to another, and nothing is lost.
//
// An Ownership with a method DrainTimeout() time.Duration waits no longer than that for a drain: Config.DrainTimeout.
type Ownership interface {
	// Hold joins the group and calls work, in a new goroutine, for every partition that this member gets, until ctx is
	// done or the membership cannot go on, which is the error. The context of work ends when the partition is to be
	// given back; its cause is an ErrLost (see Lost) when the partition is gone already. A partition is assigned to another
	// member only after work has returned, unless it was lost. A partition whose work returns early is given back. Hold
	// returns when every work has.
	Hold(ctx context.Context, work func(ctx context.Context, partition Partition)) error
}
