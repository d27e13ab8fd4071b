// SPDX-License-Identifier: Apache-2.0

// The errors that a store adds to those of package lease. errors.Is finds them, and their texts name the domain, or the ledger's
// own record as "".

package durable

import (
	"errors"
	"fmt"

	"github.com/stopbank/stopbank/lease"
)

// ErrStore says that the Store could not be read or written, or that other writers of the domain were faster at 128 tries in a
// row. The ledger is unchanged and the call may be repeated. errors.Is finds the Store's error as well, and ctx's if that was
// the cause.
var ErrStore = errors.New("durable: store failed")

func storeError(call, name string, err error) error {
	return fmt.Errorf("%w: %s of %q: %w", ErrStore, call, name, err)
}

func contention(name string) error {
	return fmt.Errorf("%w: Swap of %q: %d tries in a row conflicted with other writers", ErrStore, name, maxTries)
}

// ErrAmbiguous says that a write was sent, and that it is unknown whether it was, or will be, applied. It is the only error
// after which the ledger may have changed. Repeating the call is safe: a write that was applied shows (ALREADY_ACQUIRED with
// the lease, a *lease.LeaseNotFoundError with a Status, ENQUEUED), and one that was not is applied. Three exceptions: a
// repeated Fail may count one retry twice; a repeated AcquireNext may find its own lease, as BUSY, and a repeated Reclaim its
// own new token in place of the old one, as a *lease.TokenMismatchError: Held shows both. errors.Is does not find the cause:
// ctx's error alone would mean that nothing changed.
var ErrAmbiguous = errors.New("durable: outcome unknown")

// ambiguous hides the cause from errors.Is.
func ambiguous(domain string, cause error) error {
	return fmt.Errorf("%w: domain %q: the write may or may not have been applied: %s", ErrAmbiguous, domain, cause.Error())
}

// ErrCorrupt says that a record is not one that a ledger wrote under this name. It is neither overwritten nor replaced by a
// guess: every call that reads it returns this error until the record is repaired.
var ErrCorrupt = errors.New("durable: corrupt record")

func corrupt(name string, version uint64, defect error) error {
	return fmt.Errorf("%w: %q, version %d: %w", ErrCorrupt, name, version, defect)
}

// ErrNewer says that a record has a format newer than this program. It is neither read nor overwritten. Upgrade the program.
var ErrNewer = errors.New("durable: record of a newer format")

func newer(name string, format, known int) error {
	return fmt.Errorf("%w: %q has format %d, this program knows up to %d", ErrNewer, name, format, known)
}

// ErrExhausted says that the ledger has used up its writers (4,194,303 in the life of a ledger) or its tokens (2,199,023,255,551
// in a row). It is unchanged. Begin a new ledger.
var ErrExhausted = errors.New("durable: ledger used up")

func exhausted(what string) error {
	return fmt.Errorf("%w: it has no more %s", ErrExhausted, what)
}

// full says that the record of size bytes, with the offset in it, would be too near to the Store's limit.
func full(domain string, offset int64, size, limit int) error {
	return fmt.Errorf("%w: domain %q: no room for offset %d: a record of %d bytes is more than half of %d",
		lease.ErrBacklogFull, domain, offset, size, limit)
}
