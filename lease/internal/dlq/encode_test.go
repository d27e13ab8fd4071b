// SPDX-License-Identifier: Apache-2.0

// Letters come back as they were written, and other bytes are rejected.

package dlq_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/dlq"
)

// drawn draws whole letters, with what is odd about them.
func drawn() *rapid.Generator[deadletter.Letter] {
	return rapid.Custom(func(t *rapid.T) deadletter.Letter {
		l := deadletter.Letter{
			Partition: rapid.String().Draw(t, "partition"), Attempts: rapid.IntRange(0, 100).Draw(t, "attempts"),
			Failure: rapid.String().Draw(t, "failure"), At: time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "at"), 5).UTC(),
			Route: rapid.String().Draw(t, "route"), Parked: rapid.Bool().Draw(t, "parked"), Note: rapid.String().Draw(t, "note"),
			Record: dispatch.Record{Domain: rapid.String().Draw(t, "domain"), Offset: rapid.Int64().Draw(t, "offset")},
		}
		if rapid.Bool().Draw(t, "timed") {
			l.Record.Time = time.Unix(rapid.Int64Range(-1<<33, 1<<33).Draw(t, "time"),
				rapid.Int64Range(0, 999_999_999).Draw(t, "nanos")).UTC()
		}
		if rapid.Bool().Draw(t, "payload") {
			l.Record.Payload = append([]byte{}, rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")...)
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "headers") {
			h := dispatch.Header{Key: rapid.String().Draw(t, "key")}
			if i > 0 {
				h.Value = append([]byte{}, rapid.SliceOf(rapid.Byte()).Draw(t, "value")...)
			}
			l.Record.Headers = append(l.Record.Headers, h)
		}
		l.Size = len(l.Record.Payload)
		return l
	})
}

func TestPropertyLettersComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawn().Draw(t, "letter")
		here := rapid.Bool().Draw(t, "here")
		b := dlq.Append(nil, l)
		if !here {
			b = dlq.AppendElsewhere(nil, l)
			l.Record.Payload, l.Record.Headers = nil, nil
		}
		got, is, err := dlq.Decode(b)
		if diff := cmp.Diff(l, got); diff != "" || err != nil || is != here {
			t.Fatalf("decoded: %v, %v (-want +got):\n%s", is, err, diff)
		}
		cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		if none, _, err := dlq.Decode(b[:cut]); !errors.Is(err, deadletter.ErrCorrupt) || !cmp.Equal(none, deadletter.Letter{}) {
			t.Fatalf("%d of %d bytes: %+v, %v", cut, len(b), none, err)
		}
		if _, _, err := dlq.Decode(append(slices.Clone(b), 0)); !errors.Is(err, deadletter.ErrCorrupt) {
			t.Fatalf("a byte too much: %v", err)
		}
	})
}

// FuzzLetters: whatever a store holds, reading it neither panics nor takes memory for what is not there, and what it reads
// can be written and read again.
func FuzzLetters(f *testing.F) {
	l := deadletter.Letter{Partition: "orders/3", Record: dispatch.Record{Domain: "ann",
		Headers: []dispatch.Header{{Key: "k", Value: []byte("v")}}, Payload: []byte("p")}}
	f.Add(dlq.Append(nil, l))
	f.Add(dlq.AppendElsewhere(nil, l))
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, b []byte) {
		l, here, err := dlq.Decode(b)
		if err != nil {
			return
		}
		written := dlq.Append(nil, l)
		if !here {
			written = dlq.AppendElsewhere(nil, l)
			l.Record.Domain, l.Route = l.Record.Domain[:min(len(l.Record.Domain), 8192)], l.Route[:min(len(l.Route), 8192)]
		}
		again, _, err := dlq.Decode(written)
		if diff := cmp.Diff(l, again); diff != "" || err != nil {
			t.Errorf("decoded again: %v (-want +got):\n%s", err, diff)
		}
	})
}
