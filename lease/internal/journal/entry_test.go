// SPDX-License-Identifier: Apache-2.0

package journal

// This file reads entries that nobody wrote.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/step"
)

// sealed puts the checksum behind the body of an entry.
func sealed(body []byte) []byte {
	return binary.LittleEndian.AppendUint32(bytes.Clone(body), sum("p", body))
}

// An entry that is read says the same when it is written anew, in one entry or in many; every other is named.
func FuzzEntry(f *testing.F) {
	var s step.State
	s.Step(&step.Op{Kind: step.TryAcquire, Domain: "A", Offset: 3, Fresh: 7, Now: 1}, new(step.Result))
	s.Step(&step.Op{Kind: step.Offer, Domain: "A", Offset: 9}, new(step.Result))
	all := facts{begun: 300, floor: -2, done: []int64{5, 1, 2}, given: []int64{4}, live: map[string][]byte{"A": s.AppendLive(nil), "B": nil}}
	for _, entry := range append(all.entries("p", 1<<20), all.entries("p", 40)...) {
		f.Add(entry[:len(entry)-4])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := noFacts()
		if err := got.read("p", sealed(body)); err != nil {
			if !errors.Is(err, durable.ErrCorrupt) && !errors.Is(err, durable.ErrNewer) {
				t.Fatal(err)
			}
			return
		}
		tidy := func(f *facts) {
			slices.Sort(f.done)
			slices.Sort(f.given)
			f.done, f.given = slices.Compact(f.done), slices.Compact(f.given)
		}
		tidy(&got)
		for _, limit := range []int{1 << 20, 64} {
			again := noFacts()
			for _, entry := range got.entries("p", limit) {
				if err := again.read("p", entry); err != nil {
					t.Fatalf("%x: %v", entry, err)
				}
			}
			tidy(&again)
			if diff := cmp.Diff(got, again, cmp.AllowUnexported(facts{}), cmp.Comparer(bytes.Equal)); diff != "" {
				t.Fatal(diff)
			}
		}
		if _, err := got.states("p"); err != nil && !errors.Is(err, durable.ErrCorrupt) {
			t.Fatal(err)
		}
	})
}
