// SPDX-License-Identifier: Apache-2.0

package main

// Whatever a producer has written, each letter is printed, and no letter hides another or passes for one.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/dlq"
)

func TestEveryLetterIsPrinted(t *testing.T) {
	keys := []string{
		"", "ann", "ann  2026-01-01T00:00:00Z  1  0  refund me", " ann", "ann ", "\tann", "\xff\xfe", "a\x00b", "\x1b[2J", "\u202eann", `"ann"`,
		strings.Repeat("k", 1<<17),
	}
	times := []time.Time{{}, time.Unix(0, 0), time.Unix(-1<<61, 0), time.Unix(1<<61, 0), time.UnixMilli(-1 << 63), time.UnixMilli(1<<63 - 1)}
	desk := &dlq.Memory{}
	var want []deadletter.Letter
	for i, key := range keys {
		for j, at := range times {
			l := deadletter.Letter{Partition: "orders/3", At: at, Failure: key, Record: dispatch.Record{
				Domain: key, Offset: int64(i*len(times)+j) - 3, Time: at, Payload: []byte(key),
				Headers: []dispatch.Header{{Key: key, Value: []byte(key)}},
			}}
			noError(t, desk.Put(t.Context(), l))
			want = append(want, l)
		}
	}
	printed := func(o options) []string {
		var b bytes.Buffer
		out := bufio.NewWriter(&b)
		if err := o.list(t.Context(), desk, out); err != nil {
			t.Fatalf("L15: %+v: %v", o, err)
		}
		noError(t, out.Flush())
		return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	}
	gap := regexp.MustCompile(` {2,}`)
	rows := printed(options{})
	for i, l := range want {
		cells := gap.Split(rows[i+1], -1)
		if len(rows) != len(want)+1 || cells[0] != l.ID().String() || len(cells) < 6 && l.Failure != "" || len(cells) > 7 {
			t.Errorf("L15: %d rows; %q for %q: %q", len(rows), l.ID().String(), l.Record.Domain, cells)
		}
	}
	for i, line := range printed(options{json: true}) {
		var got letterJSON
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("L15: %.100q: %v", line, err)
		}
		key := got.Key
		if got.KeyBase64 != nil {
			key = string(got.KeyBase64)
		}
		if got.ID != want[i].ID().String() || key != want[i].Record.Domain || got.GivenUp != want[i].At.UTC().Format(time.RFC3339Nano) {
			t.Errorf("L15: %+v, want %+v", got.ID, want[i].ID())
		}
	}
	for _, l := range want {
		for _, o := range []options{{}, {json: true}} {
			var b bytes.Buffer
			out := bufio.NewWriter(&b)
			if err := o.show(out, l); err != nil || out.Flush() != nil || b.Len() == 0 {
				t.Errorf("L15: show %s: %v", l.ID(), err)
			}
		}
	}
}
