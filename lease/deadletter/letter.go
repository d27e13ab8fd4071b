package deadletter

// This file is a letter: a record that was given up, and why.

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// Letter is a record that was given up and waits for somebody to decide.
type Letter struct {
	Partition string // its name: a dispatch.Config's, or a dispatch.Partition's
	// Record is as the source had it. List leaves out Payload and Headers. A source that has lost the record leaves it without a payload.
	Record dispatch.Record
	Size   int // bytes of the payload
	// Attempts is how many failed. 0: not known, because they were made in an earlier life of the process, or none was possible.
	Attempts int
	Failure  string    // the last one, in words, clipped as by Clip; "" where that was in an earlier life
	At       time.Time // when it was given up
	// Route is what a Store needs to find the way back beside partition and domain: a subject, a key. Its Put may set it.
	Route  string
	Parked bool   // ReplayAll leaves it out
	Note   string // why it is parked, clipped as by Clip
}

// ID returns what the letter is found by.
func (l Letter) ID() ID { return ID{Partition: l.Partition, Offset: l.Record.Offset} }

// HeaderReplayOf is the header of a replayed record that names the letter: the text of its ID. A record that was replayed twice has the last.
const HeaderReplayOf = "Stopbank-Replay-Of"

// Replay returns the record to append to the source: that of the letter, with HeaderReplayOf. Offset and Time are zero, for the source gives new ones.
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
	return ID{}, &InvalidError{Field: "ID", Value: strconv.Quote(text), Allowed: "a partition, an @ and an offset: orders/3@1207"}
}

// maxText is how much of a failure or a note is kept.
const maxText = 1024

// Clip is what Stores keep of a text: valid UTF-8 without zero bytes, at most 1,024 bytes.
func Clip(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text[:min(len(text), 2*maxText)], "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "")
	}
	return text
}
