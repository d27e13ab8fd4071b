package durable

// This file is what an engine brings: three calls and a number, and what each of them has to keep.

import (
	"context"
	"errors"
	"iter"
)

// Store keeps one record for each name and swaps it when the caller knows the latest version. It is all that a Ledger asks of an
// engine. MemStore is the reference: what it does, an engine does.
//
// Names are any bytes of length 0 to 65,535: a domain, which may hold zero bytes and need not be UTF-8, or "", which is the
// ledger's own record. Two names that differ in a byte are two records. A record is opaque bytes. It is never deleted and nothing may
// expire it: a record that is gone would be taken for a domain never seen.
//
// A version is never 0. Every Swap that is applied gives the record a greater version than any that it had, for ever, over restarts
// too; versions of two names have no relation. Swaps of one name are atomic and take one order. Load is as fresh as that order: it returns what
// the latest Swap left that was answered before Load was called, or something newer. An engine whose reads can lag behind its
// writes (a read from a follower) must not read there.
//
// A Swap that has been answered is as durable as the engine promises to be; the engine's package says what that is.
//
// Every method is safe for concurrent use and returns soon after ctx is done. The Ledger holds no lock in a call.
type Store interface {
	// Load returns the record of name and its version; nil, 0 and no error when there is none. The caller may keep and change
	// the slice. A record that is there and cannot be had, for whatever reason, is an error, never "none".
	Load(ctx context.Context, name string) (state []byte, version uint64, err error)
	// Swap replaces the record of name by state if old is its version, files it under index, in the same atomic step, and returns
	// the new version. old 0 creates the record, if there is none. It keeps no reference to state. Errors:
	//
	//   - one that wraps ErrConflict: not applied, and never will be, because old is not the version;
	//   - one that wraps ErrNotApplied: not applied, and never will be, for another reason: refused, too large, not sent;
	//   - any other, ctx's too: nobody knows. It may have been applied, or may still be. The Ledger finds out by itself.
	//
	// An engine that is not sure returns the third kind: to say ErrNotApplied of a Swap that takes effect breaks the ledger.
	// Swap need not repeat itself; the Ledger sends the same Swap again when it has to.
	Swap(ctx context.Context, name string, old uint64, state []byte, index Index) (version uint64, err error)
	// Limit returns the size in bytes of the greatest record that Swap takes under name, as far as is known; 0: there is no limit. It asks nobody
	// and does not block. The Ledger takes no new offsets into a record that has reached half of it.
	Limit(name string) int
	// List yields the names whose last applied Swap filed them under index, which is Ready or Held. In no order; each name once;
	// a name that is filed there from the call of the iterator to its end is not left out; one that comes or goes meanwhile may or may not be yielded.
	// The engine holds no lock and no connection's turn while the body runs, which may call the Store. An error is yielded
	// with "" and ends it. "" itself is filed under Neither.
	List(ctx context.Context, index Index) iter.Seq2[string, error]
}

// Index is the shelf on which a record lies, so that Ready and Held need not read every domain.
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
	// ErrConflict is what a Store says of a Swap whose old version is not the record's version.
	ErrConflict = errors.New("durable: version conflict")
	// ErrNotApplied is what a Store says of a Swap that certainly was not and will not be applied, for another reason than a conflict.
	ErrNotApplied = errors.New("durable: swap not applied")
)
