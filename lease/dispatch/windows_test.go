// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"testing"
)

// What a partition keeps to read again is bounded by its part of MaxBuffered, in which large records count as several.
func TestCachedReadsAreBounded(t *testing.T) {
	cfg, err := Config{Handler: func(context.Context, Job) error { return nil }, DeadLetter: Discard}.complete()
	if err != nil {
		t.Fatal(err)
	}
	records := &semaphore{limit: cfg.MaxBuffered, ofRecords: true}
	d := sharing(Partition{}, cfg, newSlots(cfg), records, &semaphore{limit: 1})
	for range 3 {
		records.join(func() {})
	}
	var kept windows
	large := Record{Payload: make([]byte, 1<<20)}
	for i := range int64(100) {
		w := window{first: i, end: i + 1, records: []Record{large}}
		w.room = d.roomOf(w.records)
		kept.keep(w, d.records.part())
	}
	if n := len(kept); n < 1 || n > 8 {
		t.Errorf("D3: %d records of 1 MiB are cached, want a quarter of 32 at most", n)
	}
}
