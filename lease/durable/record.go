// SPDX-License-Identifier: Apache-2.0

// What lies in the store: the record of a domain and the ledger's own, as bytes.

package durable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/stopbank/stopbank/lease/internal/step"
)

const (
	// format is the newest format of a record that this package reads, and the one that it writes.
	format = 1
	// maxWriteIDs is how many writers' last writes a record keeps. A lost reply is explained if fewer other writers than this
	// came in between.
	maxWriteIDs = 16
	// writerBits of a token are the writer's number, the rest its clock. 22 and 41 leave the top bit free, so that a token
	// fits a signed column.
	writerBits = 22
	maxWriter  = 1<<writerBits - 1
	maxClock   = 1<<(63-writerBits) - 1
	// lateClock is what no ledger counts to: behind it there is room for four thousand million tokens.
	lateClock = maxClock - 1<<32
)

// writeID names one write: the n-th of a writer. After a lost reply, the id in the record shows that the write was applied.
type writeID struct{ writer, n uint64 }

// record is what is kept of a domain.
type record struct {
	state    step.State
	swaps    uint64    // Swaps that made the record what it is
	last     uint64    // the greatest token that the domain ever had (L9)
	floor    int64     // the state has been trimmed at it; never above the ledger's
	writeIDs []writeID // the last write of each of the writers that wrote last, oldest first
}

// stamp notes that m is the write that makes the record what it is.
func (r *record) stamp(m writeID) {
	r.swaps++
	r.writeIDs = slices.DeleteFunc(r.writeIDs, func(old writeID) bool { return old.writer == m.writer })
	if len(r.writeIDs) == maxWriteIDs {
		r.writeIDs = slices.Delete(r.writeIDs, 0, 1)
	}
	r.writeIDs = append(r.writeIDs, m)
}

// writer is the greatest number among the writers that r shows.
func (r *record) writer() uint64 {
	greatest := r.last & maxWriter
	for _, m := range r.writeIDs {
		greatest = max(greatest, m.writer)
	}
	return greatest
}

// coversWritesAfter reports whether r would still show any write made after the one that was its swaps-th: either no id was ever
// dropped, or too few writes came since to drop that one's.
func (r *record) coversWritesAfter(swaps uint64) bool {
	return len(r.writeIDs) < maxWriteIDs || r.swaps-swaps <= maxWriteIDs
}

// index is where the record is filed.
func (r *record) index() Index { return Index(r.state.Index()) }

// encode writes r down under name, in the format of the package comment.
func (r *record) encode(name string) []byte {
	b := append(make([]byte, 0, 128), format)
	b = binary.AppendUvarint(b, r.swaps)
	b = binary.AppendUvarint(b, r.last)
	b = binary.AppendVarint(b, r.floor)
	b = append(b, byte(len(r.writeIDs)))
	for _, m := range r.writeIDs {
		b = binary.AppendUvarint(b, m.writer)
		b = binary.AppendUvarint(b, m.n)
	}
	return appendChecksum(r.state.Append(b), name)
}

// root is the ledger's own record, under the name "".
type root struct {
	writers uint64 // numbers given to writers so far
	floor   int64
	log     string // whose offsets these are; "": not known
}

// logFormat is the format of a root with a log. One without is written in the format that older programs read.
const logFormat = 2

func (r *root) encode() []byte {
	b := []byte{format}
	if r.log != "" {
		b[0] = logFormat
	}
	b = binary.AppendVarint(binary.AppendUvarint(b, r.writers), r.floor)
	return appendChecksum(append(b, r.log...), "")
}

// checksum covers the name too, so that a record that came to lie under another name is noticed.
func checksum(b []byte, name string) uint32 {
	castagnoli := crc32.MakeTable(crc32.Castagnoli) // one table for all, which the processor does not even need
	return crc32.Update(crc32.Checksum([]byte(name), castagnoli), castagnoli, b)
}

func appendChecksum(b []byte, name string) []byte {
	return binary.LittleEndian.AppendUint32(b, checksum(b, name))
}

// open checks b's format, of which the greatest is newest, and sum, and returns what is between.
func open(b []byte, name string, version uint64, newest byte) (*reader, error) {
	const least = 1 + crc32.Size
	switch {
	case len(b) > 0 && b[0] > newest:
		return nil, newer(name, int(b[0]), int(newest))
	case len(b) < least || b[0] < format:
		return nil, corrupt(name, version, errors.New("no record"))
	}
	body := b[:len(b)-crc32.Size]
	if got, want := binary.LittleEndian.Uint32(b[len(body):]), checksum(body, name); got != want {
		return nil, corrupt(name, version, fmt.Errorf("checksum %08x, want %08x", got, want))
	}
	return &reader{rest: body[1:]}, nil
}

// decode reads the record of name.
func decode(b []byte, name string, version uint64) (*record, error) {
	d, err := open(b, name, version, format)
	if err != nil {
		return nil, err
	}
	r := &record{swaps: d.unsigned(), last: d.unsigned(), floor: d.signed()}
	n := d.unsigned()
	if n > maxWriteIDs {
		d.bad = true
	}
	for range min(n, maxWriteIDs) {
		r.writeIDs = append(r.writeIDs, writeID{d.unsigned(), d.unsigned()})
	}
	if d.bad {
		return nil, corrupt(name, version, errors.New("malformed varint"))
	}
	if err := r.state.Decode(d.rest); err != nil {
		if invalid := (*step.DecodeError)(nil); errors.As(err, &invalid) && invalid.Format > step.Format {
			return nil, newer(name, invalid.Format, step.Format)
		}
		return nil, corrupt(name, version, err)
	}
	if held, ok := r.state.Leased(); ok && held.Token > r.last {
		return nil, corrupt(name, version, errors.New("lease token exceeds the greatest token of the record"))
	}
	return r, nil
}

func decodeRoot(b []byte, version uint64) (root, error) {
	d, err := open(b, "", version, logFormat)
	if err != nil {
		return root{}, err
	}
	r := root{writers: d.unsigned(), floor: d.signed()}
	if b[0] == logFormat {
		r.log, d.rest = string(d.rest), nil
	}
	switch {
	case d.bad:
		return root{}, corrupt("", version, errors.New("malformed varint"))
	case len(d.rest) > 0 || r.writers > maxWriter || r.log == "" && b[0] == logFormat:
		return root{}, corrupt("", version, fmt.Errorf("%d writers, %d bytes behind the last field; allowed: %d at most, 0",
			r.writers, len(d.rest), maxWriter))
	}
	return r, nil
}

// reader takes numbers off rest; bad once one was none.
type reader struct {
	rest []byte
	bad  bool
}

func (d *reader) unsigned() uint64 {
	x, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.bad, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[n:]
	return x
}

func (d *reader) signed() int64 {
	x := d.unsigned()
	return int64(x>>1) ^ -int64(x&1)
}

// noFloor is the floor of a ledger before its first Compact.
const noFloor = math.MinInt64
