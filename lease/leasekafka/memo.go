// SPDX-License-Identifier: Apache-2.0

package leasekafka

// A memo is the state of a ledger in memory above the committed offset. It is written into the commit's metadata and read by the
// partition's next owner.

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strings"
)

// memo is the state of the offsets from a floor on. Its lists are in ascending order.
type memo struct {
	topic   topicID   // of whose records the offsets are; zero: not known
	epoch   uint64    // the owner's; greater than that of any earlier owner
	done    spans     // succeeded, or not in the log
	gaveUp  []int64   // given up; their dead letters may or may not have been accepted
	tried   []attempt // failed and not done
	running []attempt // leased; the handler may have killed the process. Some are in tried as well
}

// attempt is an offset that was begun and is not done.
type attempt struct {
	offset  int64
	at      int64 // when it was first acquired, in Unix milliseconds; not negative
	retries int32 // failures
	domain  string
	running bool // leased
}

// The text is the prefix, the version, a dot, and in base 64
//
//	topic    16 bytes in version 2, none in version 1
//	epoch    uvarint
//	tried    count, then for each: offset, at (signed difference from the previous one), failures
//	gaveUp   count, then for each: offset
//	done     count, then for each span: first offset, number of further offsets
//	running  count, then for each: offset, at (signed difference from the previous one), length of the domain, domain
//	check    CRC-32C of the floor, in eight bytes, and of the above: four bytes, little-endian
//
// with uvarints of encoding/binary. An offset is written as the difference from the previous one in its list, the first from the
// floor.
const (
	prefix = "stopbank-"
	head   = prefix + "1."
	headOf = prefix + "2." // of a topic's ID
	// mostText is the default of the brokers' offset.metadata.max.bytes. From fullText on, no new records are read.
	mostText = 4096
	fullText = mostText * 3 / 4
	// mostDomain is the length of the longest domain of a running record, in bytes.
	mostDomain = 128
	// mostEpoch is about 544 years in seconds.
	mostEpoch = 1<<34 - 1
	mostTime  = math.MaxInt64 / 1_000_000 // in milliseconds, so that the nanoseconds fit into an int64
)

// text encodes m for a commit at floor. If there is too little room, running records are left out first, then the done offsets
// that are farthest from the floor, which will be done again.
func (m *memo) text(floor int64) string {
	room := base64.RawStdEncoding.DecodedLen(mostText-len(head)) - crc32.Size
	var b []byte
	begin := head
	if m.topic != (topicID{}) {
		b, begin = append(b, m.topic[:]...), headOf
	}
	b = binary.AppendUvarint(b, m.epoch)
	before, at := floor, int64(0)
	offset := func(b []byte, offset, last int64) []byte {
		b = binary.AppendUvarint(b, uint64(offset)-uint64(before))
		before = last
		return b
	}
	since := func(b []byte, a attempt) []byte {
		b = binary.AppendVarint(b, a.at-at)
		at = a.at
		return b
	}
	b = pack(b, room, m.tried, func(b []byte, a attempt) []byte {
		return binary.AppendUvarint(since(offset(b, a.offset, a.offset), a), uint64(a.retries))
	})
	before = floor
	b = pack(b, room, m.gaveUp, func(b []byte, o int64) []byte { return offset(b, o, o) })
	before = floor
	b = pack(b, room, m.done, func(b []byte, s span) []byte {
		return binary.AppendUvarint(offset(b, s.first, s.last), uint64(s.last)-uint64(s.first))
	})
	before, at = floor, 0
	b = pack(b, room, m.running, func(b []byte, a attempt) []byte {
		b = binary.AppendUvarint(since(offset(b, a.offset, a.offset), a), uint64(len(a.domain)))
		return append(b, a.domain...)
	})
	return begin + base64.RawStdEncoding.EncodeToString(binary.LittleEndian.AppendUint32(b, checksum(floor, b)))
}

// pack appends the number of the items that fit, and those items.
func pack[T any](b []byte, room int, all []T, item func([]byte, T) []byte) []byte {
	const lengths = 4 * 3 // room for the lengths of this list and the later ones
	var items []byte
	n := 0
	for ; n < len(all); n++ {
		with := item(items, all[n])
		if len(b)+len(with)+lengths > room {
			break
		}
		items = with
	}
	return append(binary.AppendUvarint(b, uint64(n)), items...)
}

func checksum(floor int64, b []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(binary.LittleEndian.AppendUint64(nil, uint64(floor)), table), table, b)
}

// readMemo decodes the metadata of a commit at floor. Another program's metadata is ignored. Metadata of this package is decoded
// whole or rejected, as is a newer version's; wrong says why.
func readMemo(text string, floor int64) (m memo, wrong string) {
	if !strings.HasPrefix(text, prefix) {
		return m, ""
	}
	body, old := strings.CutPrefix(text, head)
	body, ok := strings.CutPrefix(body, headOf)
	if !ok && !old {
		return m, fmt.Sprintf("not of version 1 or 2, which this program reads: %.20q", text)
	}
	b, err := base64.RawStdEncoding.DecodeString(body)
	if err != nil || len(b) < crc32.Size {
		return m, "no base 64"
	}
	sum := b[len(b)-crc32.Size:]
	if b = b[:len(b)-crc32.Size]; binary.LittleEndian.Uint32(sum) != checksum(floor, b) {
		return m, "damaged, or of another offset"
	}
	if ok && len(b) >= len(m.topic) {
		b = b[copy(m.topic[:], b):]
	}
	d := reader{rest: b}
	m.epoch = d.number(mostEpoch)
	before, at := floor, int64(0)
	offset := func() int64 {
		before += int64(d.number(uint64(math.MaxInt64 - before)))
		return before
	}
	since := func() int64 {
		at += d.signed()
		return at
	}
	for range d.count() {
		m.tried = append(m.tried, attempt{offset: offset(), at: since(), retries: int32(d.number(math.MaxInt32))})
	}
	before = floor
	for range d.count() {
		m.gaveUp = append(m.gaveUp, offset())
	}
	before = floor
	for range d.count() {
		s := span{first: offset()}
		s.last = offset()
		m.done = append(m.done, s)
	}
	before, at = floor, 0
	for range d.count() {
		m.running = append(m.running, attempt{offset: offset(), at: since(), domain: d.bytes(), running: true})
	}
	if d.wrong || len(d.rest) > 0 || !m.valid(floor) || m.text(floor) != text {
		return memo{}, "not what this version writes"
	}
	return m, ""
}

// valid reports whether all offsets are in order, and none is in two lists that exclude each other.
func (m *memo) valid(floor int64) bool {
	rises := func(offset, before int64, first bool) bool {
		return first && offset >= floor || !first && offset > before
	}
	failures := map[int64]attempt{}
	open := func(list []attempt) bool {
		for i, a := range list {
			if !rises(a.offset, list[max(0, i-1)].offset, i == 0) || a.at < 0 || a.at > mostTime || m.done.has(a.offset) {
				return false
			}
		}
		return true
	}
	for i, s := range m.done {
		if i > 0 && s.first-1 <= m.done[i-1].last {
			return false
		}
	}
	if !open(m.tried) || !open(m.running) {
		return false
	}
	for _, a := range m.tried {
		if a.retries == 0 {
			return false
		}
		failures[a.offset] = a
	}
	domains := map[string]bool{}
	for i, a := range m.running {
		if a.domain == "" || len(a.domain) > mostDomain || domains[a.domain] {
			return false
		}
		domains[a.domain] = true
		if t, both := failures[a.offset]; both && t.at != a.at {
			return false
		} else if both {
			m.running[i].retries = t.retries
		}
		failures[a.offset] = a
	}
	for i, o := range m.gaveUp {
		if _, both := failures[o]; both || !rises(o, m.gaveUp[max(0, i-1)], i == 0) || m.done.has(o) {
			return false
		}
	}
	return true
}

func (m *memo) hasGivenUp(offset int64) bool {
	_, found := slices.BinarySearch(m.gaveUp, offset)
	return found
}

// reader decodes numbers from rest. It checks lengths before anything is allocated.
type reader struct {
	rest  []byte
	wrong bool
}

func (d *reader) number(most uint64) uint64 {
	x, n := binary.Uvarint(d.rest)
	if n <= 0 || x > most {
		d.wrong, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[n:]
	return x
}

func (d *reader) signed() int64 {
	x := d.number(math.MaxUint64)
	return int64(x>>1) ^ -int64(x&1)
}

// count reads the length of a list, whose items take at least one byte each.
func (d *reader) count() int { return int(d.number(uint64(len(d.rest)))) }

func (d *reader) bytes() string {
	n := d.count()
	if d.wrong || n > len(d.rest) {
		d.wrong, d.rest = true, nil
		return ""
	}
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}

// spans is a set of offsets: ascending spans, with at least one missing offset between each two.
type spans []span

type span struct{ first, last int64 }

// at returns the index of the first span that does not end below offset.
func (s spans) at(offset int64) int {
	i, _ := slices.BinarySearchFunc(s, offset, func(s span, offset int64) int { return cmp.Compare(s.last, offset) })
	return i
}

func (s spans) has(offset int64) bool {
	i := s.at(offset)
	return i < len(s) && s[i].first <= offset
}

// add adds the offsets from first to last.
func (s spans) add(first, last int64) spans {
	i := s.at(first)
	if i > 0 && s[i-1].last == first-1 {
		i--
	}
	j := i
	for ; j < len(s) && (s[j].first <= last || s[j].first-1 == last); j++ {
		first, last = min(first, s[j].first), max(last, s[j].last)
	}
	return slices.Replace(s, i, j, span{first, last})
}

// from removes the offsets below floor.
func (s spans) from(floor int64) spans {
	s = slices.Delete(s, 0, s.at(floor))
	if len(s) > 0 {
		s[0].first = max(s[0].first, floor)
	}
	return s
}
