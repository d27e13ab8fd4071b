// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"context"
	"errors"
)

// Store keeps the journal of one ledger: entries in a row, each written under a claim. One goroutine at a time calls a Store.
type Store interface {
	// Claim begins a claim, and ends all earlier ones: an Append under one of those adds nothing from now on. It returns the
	// claim's number, above that of every earlier one and at least the time in seconds since 1970.
	Claim(ctx context.Context) (number uint64, err error)
	// Read calls take with each entry in order. It is called once, after Claim. An entry that was appended in between, by
	// an owner that claimed later, may be left out.
	Read(ctx context.Context, take func(entry []byte) error) error
	// Append adds an entry and returns its number, or ErrClaimed. After any other error the entry may have been added; the
	// same facts are then appended again. An Append that is carried out late, after one that was called later, adds nothing.
	Append(ctx context.Context, entry []byte) (number uint64, err error)
	// Trim deletes the entries below a number.
	Trim(ctx context.Context, below uint64) error
	// Limit is the size in bytes of the largest entry.
	Limit() int
}

// Fencer is a Store in whose database transactions of handlers finish records.
type Fencer interface {
	// Fence rejects from now on every transaction that would finish a record of domain under a token below least, and returns
	// the greatest offset of domain that a transaction has finished; ok: there is one. It waits for a transaction that is about
	// to finish one.
	Fence(ctx context.Context, domain string, least uint64) (offset int64, ok bool, err error)
}

// ErrClaimed says that a later owner has claimed the journal.
var ErrClaimed = errors.New("lease: a later owner has claimed the ledger")
