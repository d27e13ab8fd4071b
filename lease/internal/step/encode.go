// SPDX-License-Identifier: Apache-2.0

// The encoding of a State: the same bytes for the same state, and no state for any other bytes.

package step

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// Format is the newest format of an encoded State that this package reads. It writes each state in the oldest
// format that can express it, so that older programs can read as much as possible.
const Format = 2

const (
	plainFormat    = 1
	releasedFormat = 2 // the lease has no owner
)

// DecodeError rejects bytes that Append did not write, or that a newer version of it wrote.
type DecodeError struct {
	Format int    // of the bytes; above Format: newer than this program. -1: there is none
	Reason string // the defect; "" for a newer format
}

func (e *DecodeError) Error() string {
	if e.Format > Format {
		return fmt.Sprintf("state of format %d, this program knows up to %d", e.Format, Format)
	}
	return "malformed state encoding: " + e.Reason
}

// The second byte of an encoded state: the phase in its low bits, and which lists follow.
const (
	phaseBits   = 3
	hasBacklog  = 1 << 2
	hasDone     = 1 << 3
	hasFailed   = 1 << 4
	contentBits = phaseBits | hasBacklog | hasDone | hasFailed
)

// Append appends s to b. The encoding is
//
//	format   1 byte: 2 for a lease that was released, otherwise 1
//	content  1 byte: the phase (0 blank, 1 leased, 2 processed, 3 failed), +4 backlog, +8 processed, +16 failed
//	lease    unless blank: offset (signed), token; if leased: AcquiredAt in Unix nanoseconds (signed), retries
//	backlog  if any: how many, then each as its difference to the one before, the first to offset (signed)
//	done     processed, then failed, if any: how many, the least (signed), then each as its distance to the one before
//
// with numbers as varints of encoding/binary, in as few bytes as they need; a signed one is zigzag encoded.
func (s *State) Append(b []byte) []byte {
	content := byte(s.phase)
	if s.backlog.len() > 0 {
		content |= hasBacklog
	}
	var done, given offsets
	if s.done != nil {
		done = s.done.processed
		if s.done.failed != nil {
			given = *s.done.failed
		}
	}
	if len(done) > 0 {
		content |= hasDone
	}
	if len(given) > 0 {
		content |= hasFailed
	}
	format := byte(plainFormat)
	if s.released {
		format = releasedFormat
	}
	b = append(b, format, content)
	if s.phase != blank {
		b = binary.AppendVarint(b, s.offset)
		b = binary.AppendUvarint(b, s.token)
	}
	if s.phase == leased {
		b = binary.AppendVarint(b, s.acquiredAt)
		b = binary.AppendUvarint(b, uint64(s.retries))
	}
	if content&hasBacklog != 0 {
		b = binary.AppendUvarint(b, uint64(s.backlog.n))
		before := s.offset
		for i := range s.backlog.n {
			offset := s.backlog.buf[(s.backlog.head+i)&(len(s.backlog.buf)-1)]
			b = binary.AppendVarint(b, offset-before) // wraps, and wraps back
			before = offset
		}
	}
	return appendOffsets(appendOffsets(b, done), given)
}

// AppendLive appends s without what is done: its lease and its backlog, as Append does for a domain that has only these.
func (s *State) AppendLive(b []byte) []byte {
	live := *s
	live.done = nil
	if live.phase != leased {
		live.phase, live.offset, live.token = blank, 0, 0
	}
	return live.Append(b)
}

func appendOffsets(b []byte, set offsets) []byte {
	if len(set) == 0 {
		return b
	}
	b = binary.AppendUvarint(b, uint64(len(set)))
	b = binary.AppendVarint(b, set[0])
	for i, offset := range set[1:] {
		b = binary.AppendUvarint(b, uint64(offset)-uint64(set[i]))
	}
	return b
}

// Decode replaces s by the state encoded in data; data is not kept. Bytes that
// Append cannot have written are rejected, including those that only break an invariant (L2), and leave s as it
// was. It allocates in proportion to len(data), whatever lengths data claims. It does not detect all damage: store a
// checksum with the bytes. Error: *DecodeError.
func (s *State) Decode(data []byte) error {
	switch {
	case len(data) == 0:
		return &DecodeError{Format: -1, Reason: "no bytes"}
	case data[0] != plainFormat && data[0] != releasedFormat:
		return &DecodeError{Format: int(data[0]), Reason: fmt.Sprintf("there is no format %d", data[0])}
	case len(data) == 1 || data[1]&^contentBits != 0:
		return &DecodeError{Format: int(data[0]), Reason: "no content byte"}
	}
	content := data[1]
	d := decoder{rest: data[2:]}
	c := State{phase: phase(content & phaseBits), released: data[0] == releasedFormat}
	d.check(!c.released || c.phase == leased, "released, and not leased")
	if c.phase != blank {
		c.offset, c.token = d.signed(), d.unsigned()
		d.check(c.token != 0, "token 0")
	}
	if c.phase == leased {
		c.acquiredAt = d.signed()
		retries := d.unsigned()
		d.check(retries <= math.MaxInt32, "too many retries")
		c.retries = int32(retries)
	}
	if content&hasBacklog != 0 {
		c.backlog = d.backlog(c.offset)
	}
	if content&(hasDone|hasFailed) != 0 {
		c.done = d.terminals(content)
	}
	d.check(len(d.rest) == 0, "bytes left over")
	if d.reason == "" {
		d.check(c.disjoint(), "an offset in two places")
	}
	if d.reason != "" {
		return &DecodeError{Format: int(data[0]), Reason: d.reason}
	}
	*s = c
	return nil
}

// disjoint is L2.
func (s *State) disjoint() bool {
	if s.phase != blank && (s.backlog.has(s.offset) || s.done != nil && s.done.status(s.offset) != 0) {
		return false
	}
	if s.done == nil {
		return true
	}
	for i := range s.backlog.len() {
		if s.done.status(s.backlog.buf[i]) != 0 { // a ring just filled begins at 0
			return false
		}
	}
	return s.done.failed == nil || !slices.ContainsFunc(*s.done.failed, s.done.processed.has)
}

// decoder takes numbers off rest. After the first that is wrong it says why in reason and takes no more.
type decoder struct {
	rest   []byte
	reason string
}

func (d *decoder) check(ok bool, reason string) {
	if !ok && d.reason == "" {
		d.reason, d.rest = reason, nil
	}
}

func (d *decoder) unsigned() uint64 {
	x, n := binary.Uvarint(d.rest)
	if n <= 0 || n > 1 && d.rest[n-1] == 0 { // cut off, too long, or longer than it need be
		d.check(false, "not a number")
		return 0
	}
	d.rest = d.rest[n:]
	return x
}

func (d *decoder) signed() int64 {
	x := d.unsigned()
	return int64(x>>1) ^ -int64(x&1)
}

// count is a length. Each member takes a byte at least, so a greater one is a lie, and nothing is allocated for it.
func (d *decoder) count() int {
	n := d.unsigned()
	if n == 0 || n > uint64(len(d.rest)) {
		d.check(false, "not a length")
		return 0
	}
	return int(n)
}

func (d *decoder) backlog(before int64) *queue {
	q := &queue{}
	for range d.count() {
		offset := before + d.signed()
		if d.reason != "" || q.has(offset) {
			d.check(false, "an offset waits twice")
			return nil
		}
		q.push(offset)
		before = offset
	}
	return q
}

func (d *decoder) terminals(content byte) *terminals {
	t := newTerminals()
	if content&hasDone != 0 {
		t.processed = d.offsets(t.processed)
	}
	if content&hasFailed != 0 {
		given := d.offsets(nil)
		t.failed = &given
		t.raiseTop(given)
	}
	t.raiseTop(t.processed)
	return t
}

// raiseTop lifts top to the greatest of set.
func (t *terminals) raiseTop(set offsets) {
	if len(set) > 0 {
		t.top = max(t.top, set[len(set)-1])
	}
}

func (d *decoder) offsets(set offsets) offsets {
	n := d.count()
	if n > cap(set) {
		set = make(offsets, 0, n)
	}
	for i := range n {
		if i == 0 {
			set = append(set, d.signed())
			continue
		}
		distance, last := d.unsigned(), set[i-1]
		d.check(distance > 0 && distance <= uint64(math.MaxInt64)-uint64(last), "done offsets do not rise")
		if d.reason != "" {
			return nil
		}
		set = append(set, last+int64(distance))
	}
	return set
}
