// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file is a record, and the interface of its source.

import (
	"context"
	"strconv"
	"time"
)

// Record is one piece of work. The dispatcher looks at Domain and Offset, and at nothing else.
type Record struct {
	// Domain is the key: records of one domain are worked on one at a time, in order. For records without a key see
	// Keyless.
	Domain  string
	Offset  int64 // its position in the partition
	Payload []byte
	Headers []Header  // in the source's order, or by name (leasenats); nil if it has none
	Time    time.Time // when it was written, by the source's clock; zero if the source does not say
}

// Header is a name and a value beside a record's payload. Names may repeat.
type Header struct {
	Key   string
	Value []byte
}

// lanes is how many domains share the records that have no key.
const lanes = 256

// Keyless returns the domain of a record without a key: one of 256, by its offset. Such records need no order, but a
// ledger remembers every domain, so they share a fixed number of domains; a record that fails delays every 256th. A real
// key with the name of one of the 256 shares that domain and loses nothing.
func Keyless(offset int64) string { return "keyless/" + strconv.Itoa(int(uint64(offset)%lanes)) }

// Source is one partition of a log: records with rising offsets, gaps allowed, that can be read again from any offset
// until they are committed. Every call says where to read, so a Source needs no position of its own. Fetch, Commit and
// End may run at the same time, but no method runs twice at once. Every method must return soon after ctx is done. An
// ErrLost (see Lost) of Committed, Fetch or Commit ends the Run; after an ErrRewound (see Rewound) the partition stands still until
// the log is right again; after every other error the call is made again.
type Source interface {
	// Committed returns the offset to begin at: the greatest committed floor, or the first offset available. It is called
	// when the partition is taken, again if that fails: a Source that can tell its owners apart claims the partition here,
	// and its Commit rejects the former one (Lost).
	Committed(ctx context.Context) (int64, error)
	// Fetch returns at most limit records in the order of their offsets, from the first offset at or above from, leaving none
	// out; of large ones a mebibyte or so, for nobody else knows before how large they are. A batch that begins below from or
	// does not rise is rejected whole (FetchFailed, a *lease.InvalidError). Fetch waits until there is a record, and returns no
	// empty slice without an error. The dispatcher cancels ctx to read somewhere else first; nothing is lost by that. It keeps
	// the records, so a Source must not reuse them.
	Fetch(ctx context.Context, from int64, limit int) ([]Record, error)
	// Commit says that every record below floor is done. Floors rise; the last one, or at first that of Committed, is
	// repeated to ask whether the partition is still owned, before a lease of another process is reclaimed and after one
	// was taken from this. A server may carry a commit out after its ctx has ended and others were accepted: the
	// position must not fall by that. A Source that knows that the partition belongs to another member must return
	// Lost.
	Commit(ctx context.Context, floor int64) error
}

// Ended is a Source that knows its end. End is called once every CommitEvery, for Stats.Lag and Stats.Stalled. Of its errors an
// ErrLost and an ErrRewound count, as those of Fetch do; a Source that returns an ErrRewound from Fetch returns it from End too,
// until it is over. Other errors are ignored.
type Ended interface {
	// End returns the offset after the last record that there was, or more. If that is less, twice in a row, than what Fetch has
	// returned or Committed has said, the log is taken for another one (ErrRewound).
	End(ctx context.Context) (int64, error)
}

// Identified is a Source that can tell its log from another one under the same name, such as a stream that was deleted and made
// anew. A ledger of package durable keeps the identity of the log that it is first used with, and with another log the partition
// is Stalled (rewound): the offsets that are done are not that log's. A Ledger that wraps one passes its method Bind on. Other
// ledgers keep it for one Run.
type Identified interface {
	// Identity returns a text that is the same as long as an offset stays the same record's: across restarts and failovers, and
	// for no other log. "": it is not known, and nothing is compared. It is called when the partition is taken, and once every
	// CommitEvery, by one goroutine at a time.
	Identity(ctx context.Context) (string, error)
}
