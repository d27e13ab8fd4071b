// SPDX-License-Identifier: Apache-2.0

// A letter: a record that was given up, and why.

package deadletter

import (
	"strconv"
	"strings"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// Letter is a record that was given up and waits for an operator's decision.
type Letter struct {
	Partition string // the Name of a dispatch.Partition
	// Record is the record as read from the source. List leaves out Payload and Headers. If the source has lost the
	// record there is no payload.
	Record dispatch.Record
	Size   int // bytes of the payload
	// Attempts counts the failed attempts. 0: unknown, because an earlier process made them, or no attempt was possible.
	Attempts int
	// Failure is the text of the last failure: valid UTF-8 without zero bytes, cut to 1,024 bytes. "": it was in an earlier
	// process.
	Failure string
	At      time.Time // when it was given up, or a DeadLetter function that had failed was called again
	// Route is what a Store needs for a replay beside partition and domain: a subject, a key. Its Put may set it.
	Route  string
	Parked bool   // ReplayAll skips it
	Note   string // why it is parked; cut like Failure
}

// ID returns the letter's ID: the partition and offset of its record.
func (l Letter) ID() ID { return ID{Partition: l.Partition, Offset: l.Record.Offset} }

// ID names a letter: the partition and the offset of its record.
type ID struct {
	Partition string
	Offset    int64
}

// String returns the partition, an @ and the offset: orders/3@1207.
func (id ID) String() string { return id.Partition + "@" + strconv.FormatInt(id.Offset, 10) }

// ParseID is the inverse of ID.String. Error: *InvalidError.
func ParseID(text string) (ID, error) {
	at := strings.LastIndexByte(text, '@')
	offset, err := strconv.ParseInt(text[at+1:], 10, 64)
	if id := (ID{text[:max(at, 0)], offset}); at >= 0 && err == nil && id.String() == text {
		return id, nil
	}
	return ID{}, invalidField("ID", strconv.Quote(text), "a partition, an @ and an offset, such as orders/3@1207")
}
