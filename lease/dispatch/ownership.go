package dispatch

// This file is who holds which partition: what a consumer needs of the group that it belongs to.

import (
	"context"

	"github.com/stopbank/stopbank/lease"
)

// Partition is one that is held: where its records come from, and what is known of them.
type Partition struct {
	Name   string // unique among those of the group
	Source Source
	Ledger lease.Ledger
}

// Ownership is membership of a group that shares partitions out: Kafka's consumer groups (leasekafka), a record in a bucket of JetStream
// (leasenats), advisory locks of PostgreSQL (leasepg). It says who should work where; it is not the fence. That is the ledger's token,
// everywhere: a member may go on for a while after a partition was given to another, and loses nothing by it.
type Ownership interface {
	// Hold joins the group and calls work in a goroutine of its own for every partition that this member gets, until ctx is done or
	// the membership cannot go on, which is the error. The context of work ends when the partition is to be given back, and
	// its cause is a *LostError when it is gone already. A partition is given away after work has returned, and never before unless
	// it was lost; one whose work returns while it is still held is given back. Hold returns when every work has.
	Hold(ctx context.Context, work func(ctx context.Context, partition Partition)) error
}
