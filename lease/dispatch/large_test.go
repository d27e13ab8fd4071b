// SPDX-License-Identifier: Apache-2.0

package dispatch_test

// This file holds what D3 and D9 say of memory: large records, of several partitions, some of them larger than the bound.

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// Partitions with large records share the bytes of MaxBuffered, of one key and of one owner as well, and all is done.
func TestLargeRecordsAreBounded(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name             string
		cfg              dispatch.Config
		partitions, keys int
		size, most       int // bytes of a record, and how many are buffered
	}{
		{name: "one partition", partitions: 1, keys: 1000, size: mib, most: 32},
		{name: "three", partitions: 3, keys: 1000, size: mib, most: 32 + 2},
		{name: "a small number", cfg: dispatch.Config{MaxBuffered: 40}, partitions: 1, keys: 1000, size: 2 * mib, most: 16},
		{name: "a great one", cfg: dispatch.Config{MaxBuffered: 2048}, partitions: 1, keys: 1000, size: mib, most: 64},
		{name: "one key", partitions: 1, keys: 1, size: mib / 4, most: 4},
		{name: "one owner", cfg: dispatch.Config{Owner: func(string) string { return "all" }}, partitions: 1, keys: 1000, size: mib, most: 4},
		{name: "small ones", partitions: 1, keys: 1000, size: 1 << 10, most: 1024},
		{name: "each above the bound", partitions: 2, keys: 1000, size: 40 * mib, most: 2},
	} {
		bubble(t, c.name, func(t *testing.T) {
			payload := make([]byte, c.size) // of all records: this test needs no memory
			blocked := make(chan struct{})
			c.cfg.Handler = func(context.Context, dispatch.Job) error { <-blocked; return nil }
			r := consume(t, c.cfg)
			bounded := func() {
				n := 0
				for _, s := range r.Stats() {
					if n += s.Buffered; s.Buffered == 0 && s.Lag != 0 {
						t.Errorf("D9: %s has none", s.Name)
					}
				}
				if n > c.most {
					t.Errorf("D3: %d records of %d bytes are buffered, want %d at most", n, c.size, c.most)
				}
			}
			const each = 1500
			for i := range c.partitions {
				log := new(dispatch.Log)
				for n := range each {
					log.Append(fmt.Sprint("k", n%c.keys), payload)
				}
				r.give(dispatch.Partition{Name: fmt.Sprint("p", i), Source: log, Ledger: memory(t, 0)})
			}
			time.Sleep(time.Minute)
			bounded()
			close(blocked)
			time.Sleep(time.Hour)
			bounded()
			r.mustStop(t)
			done := 0
			for _, offsets := range r.offsets {
				done += len(offsets)
			}
			equal(t, "D3: done", done, each*c.partitions)
		})
	}
}
