package dispatch

// This file is what a dispatcher needs of the place that records come from.

import "context"

// Record is one piece of work.
type Record struct {
	Domain  string // what must not be worked on twice at once: a key
	Offset  int64  // its place in the partition
	Payload []byte // the dispatcher does not look at it
}

// Source is one partition of a log: records with rising offsets, gaps allowed, that can be read from any place again and
// again until they are committed. It is told with every call where to read, so that it has no position to lose. Fetch, Commit
// and End may be called at the same time, but no method runs twice at once. A Source must return soon after ctx is done.
type Source interface {
	// Committed returns the offset to begin at: the greatest floor that was committed, or the first offset that
	// there is. It is called once, when the partition is taken.
	Committed(ctx context.Context) (int64, error)
	// Fetch returns records in the order of their offsets, beginning with the first whose offset is from or above and leaving none
	// out, at most limit. It waits until there is one, and returns no empty slice without an error. The dispatcher cancels ctx to
	// read somewhere else first; nothing is lost by that. It keeps the records, so a Source must not use them again.
	Fetch(ctx context.Context, from int64, limit int) ([]Record, error)
	// Commit says that every record below floor is done. Floors rise. A Source that knows that the partition belongs to
	// somebody else by now must refuse.
	Commit(ctx context.Context, floor int64) error
}

// Ended is a Source that knows its end. It is asked once every CommitEvery, for Stats.Lag.
type Ended interface {
	// End returns the offset after the last record.
	End(ctx context.Context) (int64, error)
}
