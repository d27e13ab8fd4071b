package dispatch

// This file is what a dispatcher needs of the place that records come from.

import (
	"context"
	"strconv"
	"time"
)

// Record is one piece of work. The dispatcher looks at Domain and Offset, and at nothing else.
type Record struct {
	// Domain is what must not be worked on twice at once: a key. Of records without one see Keyless.
	Domain  string
	Offset  int64 // its place in the partition
	Payload []byte
	Headers []Header  // in the source's order; nil if it has none
	Time    time.Time // when it was written, by the source's clock; zero if the source does not say
}

// Header is a name and a value that a record carries beside its payload. Names may repeat.
type Header struct {
	Key   string
	Value []byte
}

// lanes is how many domains share the records that have no key.
const lanes = 256

// Keyless returns the domain of a record without a key: one of 256, by its offset. Such records have no order to keep, yet a
// ledger remembers each domain that it ever had; so they share a fixed number of domains, and one that fails delays each 256th.
// A key that happens to be called like one of the 256 loses nothing: it shares that domain.
func Keyless(offset int64) string { return "keyless/" + strconv.Itoa(int(uint64(offset)%lanes)) }

// Source is one partition of a log: records with rising offsets, gaps allowed, that can be read from any place again and
// again until they are committed. It is told with every call where to read, so that it has no position to lose. Fetch, Commit
// and End may be called at the same time, but no method runs twice at once. A Source must return soon after ctx is done. An error
// that is a *LostError ends the Run; every other is tried again.
type Source interface {
	// Committed returns the offset to begin at: the greatest floor that was committed, or the first offset that
	// there is. It is called once, when the partition is taken.
	Committed(ctx context.Context) (int64, error)
	// Fetch returns records in the order of their offsets, beginning with the first whose offset is from or above and leaving none
	// out, at most limit; what does not begin there and rise is refused whole, with a *BatchError. It waits until there is one, and
	// returns no empty slice without an error. The dispatcher cancels ctx to read somewhere else first; nothing is lost by that. It
	// keeps the records, so a Source must not use them again.
	Fetch(ctx context.Context, from int64, limit int) ([]Record, error)
	// Commit says that every record below floor is done. Floors rise; the last one is said again to ask whose the partition is. A Source that knows that the partition belongs to
	// somebody else by now must refuse, with a *LostError.
	Commit(ctx context.Context, floor int64) error
}

// Ended is a Source that knows its end. It is asked once every CommitEvery, for Stats.Lag.
type Ended interface {
	// End returns the offset after the last record.
	End(ctx context.Context) (int64, error)
}
