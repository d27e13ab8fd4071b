// SPDX-License-Identifier: Apache-2.0

// The interface of a store: three calls and a number, with the guarantees that each must give.

package durable

import (
	"context"
	"errors"
	"iter"
)

// Store keeps one record for each name and replaces it by compare-and-swap. A ledger needs nothing else.
// NewMemStore makes the reference implementation, and leasetest.Run over New tests another one.
//
// A name is any 0 to 65,535 bytes: a domain, which may hold zero bytes and need not be UTF-8, or "", the ledger's own
// record. Names that differ in a byte are different records. A record is opaque bytes. It must never be deleted or
// expire: a missing record is taken for a domain never seen.
//
// A version is never 0. Every applied Swap gives the record a greater version than it ever had, also across restarts;
// versions of different names are unrelated. Swaps of one name are atomic and have one order. Load returns the result of
// the latest Swap that was answered before Load was called, or something newer. An engine whose reads can lag behind its
// writes (a read from a follower) must not read there.
//
// An answered Swap is as durable as the engine's package says.
//
// Every method is safe for concurrent use and returns soon after ctx is done. The ledger holds no lock during a call.
type Store interface {
	// Load returns the record of name and its version; nil, 0 and no error if there is none. The caller may keep and
	// change the slice. A record that exists but cannot be read is an error, never "none".
	Load(ctx context.Context, name string) (state []byte, version uint64, err error)
	// Swap replaces the record of name by state if old is its version, files it under index in the same atomic step, and returns
	// the new version. old 0 creates the record, if there is none. It keeps no reference to state. Errors:
	//
	//   - one that wraps ErrConflict: not applied, and never will be, because old is not the version;
	//   - one that wraps ErrNotApplied: not applied, and never will be, for another reason: rejected, too large, not sent;
	//   - any other, ctx's too: unknown. It may have been applied, or may still be. The ledger finds out by itself.
	//
	// An engine that is not sure returns the third kind: ErrNotApplied for a Swap that takes effect breaks the ledger.
	// Swap need not retry; the Ledger sends the same Swap again when it has to.
	Swap(ctx context.Context, name string, old uint64, state []byte, index Index) (version uint64, err error)
	// Limit returns the size in bytes of the largest record that Swap accepts under name, as far as is known; 0: no
	// limit. It sends no request and does not block. The ledger accepts no new offset that would take a record above half of
	// it, less 256 bytes.
	Limit(name string) int
	// List yields the names whose last applied Swap filed them under index, which is Ready or Held: in no order, each
	// name once. A name filed there throughout the iteration is not left out; one that comes or goes meanwhile may or
	// may not be yielded. No lock and no connection is held while the body runs, which may call the Store. An error is
	// yielded with "" and ends the iteration. "" itself is filed under Neither.
	List(ctx context.Context, index Index) iter.Seq2[string, error]
}

// Index is where a record is filed, so that Ready and Held need not read every domain.
type Index uint8

const (
	// Neither: nothing is leased and nothing waits. Not listed.
	Neither Index = iota
	// Ready: no lease, and a backlog.
	Ready
	// Held: a lease.
	Held
)

// String returns neither, ready or held; undefined for any other. It does not allocate.
func (i Index) String() string {
	switch i {
	case Neither:
		return "neither"
	case Ready:
		return "ready"
	case Held:
		return "held"
	}
	return "undefined"
}

var (
	// ErrConflict is a Store's error for a Swap whose old version is not the record's version.
	ErrConflict = errors.New("durable: version conflict")
	// ErrNotApplied is a Store's error for a Swap that certainly was not and will not be applied, for another reason
	// than a conflict.
	ErrNotApplied = errors.New("durable: swap not applied")
)
