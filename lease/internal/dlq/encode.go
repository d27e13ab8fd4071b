// SPDX-License-Identifier: Apache-2.0

// A letter as bytes: varints, strings behind their lengths.

package dlq

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// The first byte.
const (
	whole     = 1
	elsewhere = 2 // payload and headers are in the source alone: their place is the size of the payload
)

// mostText is how much of a domain or a route is kept of a letter whose record is too large to be kept, in bytes.
const mostText = 8192

// Append appends l to b, as Decode reads it.
func Append(b []byte, l deadletter.Letter) []byte {
	b = appendHead(b, whole, l)
	b = binary.AppendUvarint(b, uint64(len(l.Record.Headers)))
	for _, h := range l.Record.Headers {
		b = appendText(b, h.Key)
		b = appendBytes(b, h.Value)
	}
	return appendBytes(b, l.Record.Payload)
}

// AppendElsewhere is Append for a letter whose record is too large to be kept: without payload and headers, which its source has, and
// with at most 8,192 bytes of domain and route.
func AppendElsewhere(b []byte, l deadletter.Letter) []byte {
	for _, text := range []*string{&l.Record.Domain, &l.Route} {
		*text = (*text)[:min(len(*text), mostText)]
	}
	return binary.AppendUvarint(appendHead(b, elsewhere, l), uint64(max(0, l.Size)))
}

func appendHead(b []byte, format byte, l deadletter.Letter) []byte {
	b = append(b, format)
	b = appendText(b, l.Partition)
	b = binary.AppendVarint(b, l.Record.Offset)
	b = appendText(b, l.Record.Domain)
	b = appendTime(b, l.Record.Time)
	b = binary.AppendUvarint(b, uint64(max(0, l.Attempts)))
	b = appendText(b, l.Failure)
	b = appendTime(b, l.At)
	b = appendText(b, l.Route)
	parked := byte(0)
	if l.Parked {
		parked = 1
	}
	b = append(b, parked)
	return appendText(b, l.Note)
}

// Decode reads what Append or AppendElsewhere wrote. It keeps nothing of b. here: the record is in it. Error: deadletter.ErrCorrupt.
func Decode(b []byte) (l deadletter.Letter, here bool, err error) {
	if len(b) == 0 || b[0] != whole && b[0] != elsewhere {
		return deadletter.Letter{}, false, fmt.Errorf("%w: an unknown format", deadletter.ErrCorrupt)
	}
	here = b[0] == whole
	d := decoder{rest: b[1:]}
	l.Partition = d.text()
	l.Record.Offset = d.varint()
	l.Record.Domain = d.text()
	l.Record.Time = d.time()
	l.Attempts = int(min(d.uvarint(), math.MaxInt32))
	l.Failure = d.text()
	l.At = d.time()
	l.Route = d.text()
	l.Parked = d.uvarint() == 1
	l.Note = d.text()
	if here {
		for range d.uvarint() {
			if d.bad { // a count is believed as far as there are headers
				break
			}
			l.Record.Headers = append(l.Record.Headers, dispatch.Header{Key: d.text(), Value: d.bytes()})
		}
		l.Record.Payload = d.bytes()
		l.Size = len(l.Record.Payload)
	} else {
		l.Size = int(min(d.uvarint(), math.MaxInt32))
	}
	if d.bad || len(d.rest) > 0 {
		return deadletter.Letter{}, false, fmt.Errorf("%w: cut off, or too long", deadletter.ErrCorrupt)
	}
	return l, here, nil
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// appendBytes tells nil from empty: a tombstone is a record, too.
func appendBytes(b, value []byte) []byte {
	if value == nil {
		return append(b, 0)
	}
	return append(binary.AppendUvarint(b, uint64(len(value))+1), value...)
}

func appendTime(b []byte, t time.Time) []byte {
	return binary.AppendUvarint(binary.AppendVarint(b, t.Unix()), uint64(t.Nanosecond()))
}

// decoder reads on until something is wrong; from then on it reads zeros.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) uvarint() uint64 {
	n, size := binary.Uvarint(d.rest)
	return skip(d, n, size)
}

func (d *decoder) varint() int64 {
	n, size := binary.Varint(d.rest)
	return skip(d, n, size)
}

func skip[T int64 | uint64](d *decoder, n T, size int) T {
	if d.bad || size <= 0 {
		d.bad = true
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

// take returns the next n bytes.
func (d *decoder) take(n uint64) []byte {
	if d.bad || n > uint64(len(d.rest)) {
		d.bad = true
		return nil
	}
	taken := d.rest[:n]
	d.rest = d.rest[n:]
	return taken
}

func (d *decoder) text() string { return string(d.take(d.uvarint())) }

func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if n == 0 {
		return nil
	}
	return append([]byte{}, d.take(n-1)...)
}

func (d *decoder) time() time.Time {
	seconds, nanos := d.varint(), d.uvarint()
	if nanos >= uint64(time.Second) {
		d.bad = true
		return time.Time{}
	}
	t := time.Unix(seconds, int64(nanos)).UTC()
	if t.IsZero() {
		return time.Time{}
	}
	return t
}
