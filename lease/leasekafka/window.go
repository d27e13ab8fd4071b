// SPDX-License-Identifier: Apache-2.0

package leasekafka

// A partition's window holds fetched records that are not read yet, and read ones that may be read again.

import (
	"slices"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// window holds every record that the log has from start to next. Records are added at the upper end and removed at the lower end.
type window struct {
	records     []dispatch.Record
	start, next int64
	read        int64 // the records below it have been handed out
	bytes       int   // size of all records
	epochs      []epoch
	ahead       int // size of the records not handed out yet
}

// epoch is that of the partition's leader which wrote the records from an offset on.
type epoch struct {
	from   int64
	number int32
}

// leader says which leader wrote the record at an offset; a negative epoch says nothing.
func (w *window) leader(offset int64, number int32) {
	if number >= 0 && (len(w.epochs) == 0 || number > w.epochs[len(w.epochs)-1].number) {
		w.epochs = append(w.epochs, epoch{offset, number})
	}
}

// epoch returns the epoch of the last record up to floor, -1 if it is not known. By it a broker tells a log that was cut off below
// the floor and written on. Floors rise.
func (w *window) epoch(floor int64) int32 {
	for len(w.epochs) > 1 && w.epochs[1].from <= floor {
		w.epochs = w.epochs[1:]
	}
	if len(w.epochs) == 0 || w.epochs[0].from > floor {
		return -1
	}
	return w.epochs[0].number
}

// overhead is about how much memory a record takes besides its contents, in bytes.
const overhead = 128

func size(r dispatch.Record) int {
	bytes := overhead + len(r.Domain) + len(r.Payload)
	for _, h := range r.Headers {
		bytes += len(h.Key) + len(h.Value)
	}
	return bytes
}

// reset empties the window; the next record is at offset or above.
func (w *window) reset(offset int64) {
	*w = window{start: offset, next: offset, read: offset, epochs: w.epochs}
}

// add appends a record, unless it is below next.
func (w *window) add(r dispatch.Record) {
	if r.Offset < w.next {
		return
	}
	w.next = r.Offset + 1
	w.records = append(w.records, r)
	w.bytes += size(r)
	if r.Offset >= w.read {
		w.ahead += size(r)
	}
}

// at returns the index of the first record at offset or above.
func (w *window) at(offset int64) int {
	i, _ := slices.BinarySearchFunc(w.records, offset, func(r dispatch.Record, offset int64) int {
		return int(min(1, max(-1, r.Offset-offset)))
	})
	return i
}

// recordsFrom returns at most limit records from offset on, which is not below start.
func (w *window) recordsFrom(offset int64, limit int) []dispatch.Record {
	first := w.at(offset)
	last := first + max(0, min(limit, len(w.records)-first))
	read := offset
	if last > first {
		read = w.records[last-1].Offset + 1
	}
	if read > w.read {
		for _, r := range w.records[w.at(w.read):w.at(read)] {
			w.ahead -= size(r)
		}
		w.read = read
	}
	return slices.Clone(w.records[first:last])
}

// trim removes records that have been handed out: those below floor, and the oldest others until no more than most bytes are left.
func (w *window) trim(floor int64, most int) {
	n := 0
	for _, r := range w.records {
		if r.Offset >= w.read || r.Offset >= floor && w.bytes <= most {
			break
		}
		w.bytes -= size(r)
		w.start = r.Offset + 1
		n++
	}
	clear(w.records[:n])
	w.records = w.records[n:]
}
