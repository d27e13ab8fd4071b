package deadletter

// This file writes a letter down for stores that keep bytes: format 1, varints, strings behind their lengths.

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// format is the first byte.
const format = 1

// AppendBinary implements encoding.BinaryAppender. It never fails.
func (l Letter) AppendBinary(b []byte) ([]byte, error) {
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
	b = appendText(b, l.Note)
	b = binary.AppendUvarint(b, uint64(len(l.Record.Headers)))
	for _, h := range l.Record.Headers {
		b = appendText(b, h.Key)
		b = appendBytes(b, h.Value)
	}
	return appendBytes(b, l.Record.Payload), nil
}

// MarshalBinary implements encoding.BinaryMarshaler. It never fails.
func (l Letter) MarshalBinary() ([]byte, error) {
	return l.AppendBinary(make([]byte, 0, 128+len(l.Failure)+len(l.Record.Domain)+len(l.Record.Payload)))
}

// Decode reads what AppendBinary wrote. It keeps nothing of b. Error: *CorruptError.
func Decode(b []byte) (letter Letter, err error) {
	if len(b) == 0 || b[0] != format {
		return Letter{}, &CorruptError{Reason: "an unknown format"}
	}
	d := decoder{rest: b[1:]}
	letter.Partition = d.text()
	letter.Record.Offset = d.varint()
	letter.Record.Domain = d.text()
	letter.Record.Time = d.time()
	letter.Attempts = int(min(d.uvarint(), math.MaxInt32))
	letter.Failure = d.text()
	letter.At = d.time()
	letter.Route = d.text()
	letter.Parked = d.uvarint() == 1
	letter.Note = d.text()
	for range d.uvarint() {
		if d.bad { // a count is believed as far as there are headers
			break
		}
		letter.Record.Headers = append(letter.Record.Headers, dispatch.Header{Key: d.text(), Value: d.bytes()})
	}
	letter.Record.Payload = d.bytes()
	if d.bad || len(d.rest) > 0 {
		return Letter{}, &CorruptError{Reason: "cut off, or too long"}
	}
	letter.Size = len(letter.Record.Payload)
	return letter, nil
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
