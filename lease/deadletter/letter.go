package deadletter

// This file is a letter: a record that was given up, and why.

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// Letter is a record that was given up and waits for an operator's decision.
type Letter struct {
	Partition string // the Name of a dispatch.Config or dispatch.Partition
	// Record is the record as read from the source. List leaves out Payload and Headers. If the source has lost the
	// record there is no payload.
	Record dispatch.Record
	Size   int // bytes of the payload
	// Attempts counts the failed attempts. 0: unknown, because an earlier process made them, or no attempt was possible.
	Attempts int
	Failure  string    // the text of the last failure, clipped by Clip; "" if it was in an earlier process
	At       time.Time // when it was given up
	// Route is what a Store needs for a replay beside partition and domain: a subject, a key. Its Put may set it.
	Route  string
	Parked bool   // ReplayAll skips it
	Note   string // why it is parked, clipped as by Clip
}

// ID returns the letter's ID: the partition and offset of its record.
func (l Letter) ID() ID { return ID{Partition: l.Partition, Offset: l.Record.Offset} }

// HeaderReplayOf is the header of a replayed record with the letter's ID as text. A record that was replayed twice has
// the last one's.
const HeaderReplayOf = "Stopbank-Replay-Of"

// Replay returns the record to append to the source: the letter's, with HeaderReplayOf. Offset and Time are zero,
// because the source sets them.
func (l Letter) Replay() dispatch.Record {
	record := l.Record
	record.Offset, record.Time = 0, time.Time{}
	record.Headers = slices.DeleteFunc(slices.Clone(record.Headers), func(h dispatch.Header) bool { return h.Key == HeaderReplayOf })
	record.Headers = append(record.Headers, dispatch.Header{Key: HeaderReplayOf, Value: []byte(l.ID().String())})
	return record
}

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

// maxText is how much of a failure or a note is kept.
const maxText = 1024

// Clip returns the part of a text that Stores keep: valid UTF-8 without zero bytes, at most 1,024 bytes.
func Clip(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text[:min(len(text), 2*maxText)], "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "")
	}
	return text
}
