// SPDX-License-Identifier: Apache-2.0

// The verdict: each way in which a round can go wrong, and what is no fault.

package faults

import (
	"testing"

	"github.com/stopbank/stopbank/lease"
)

func TestJudge(t *testing.T) {
	arrived := map[string][]int64{"A": {2, 1, 3}}
	entry := func(offset int64, token lease.Token) Entry { return Entry{"A", offset, token} }
	said := func(what string, offset int64, token lease.Token) note {
		return note{What: what, Domain: "A", Offset: offset, Token: token}
	}
	whole := []Entry{entry(2, 1), entry(1, 4), entry(3, 6)}
	for name, c := range map[string]struct {
		entries                []Entry
		journal                []note
		poison                 *Entry
		strict                 bool
		lost, doubled, other   int
		redone, fenced, refuse int
	}{
		"as it should be": {entries: whole, journal: []note{said("holding", 2, 1), said("done", 2, 1), said("done", 3, 6)},
			strict: true},
		"a record is missing":   {entries: whole[:2], lost: 1},
		"nothing is there":      {lost: 3},
		"it was to be given up": {entries: whole[:2], poison: &Entry{Domain: "A", Offset: 3}},
		"again, after a death":  {entries: []Entry{entry(2, 1), entry(2, 2), entry(1, 4), entry(3, 6)}, redone: 1},
		"again, and nobody died": {entries: []Entry{entry(2, 1), entry(2, 2), entry(1, 4), entry(3, 6)}, strict: true,
			redone: 1, doubled: 1},
		"again, after its end": {entries: []Entry{entry(2, 1), entry(2, 2), entry(1, 4), entry(3, 6)},
			journal: []note{said("done", 2, 1)}, redone: 1, doubled: 1},
		"back after another":      {entries: append(whole[:3:3], entry(2, 7)), doubled: 1},
		"completed twice":         {entries: whole, journal: []note{said("done", 2, 1), said("done", 2, 2)}, doubled: 1},
		"a token goes down":       {entries: []Entry{entry(2, 5), entry(1, 4), entry(3, 6)}, other: 1},
		"a token stays":           {entries: []Entry{entry(2, 4), entry(1, 4), entry(3, 6)}, other: 1},
		"out of order":            {entries: []Entry{entry(1, 1), entry(2, 4), entry(3, 6)}, other: 1},
		"a domain out of nowhere": {entries: append(whole[:3:3], Entry{"B", 1, 9}), other: 1},
		"a token granted twice":   {entries: whole, journal: []note{said("holding", 2, 1), said("holding", 1, 1)}, other: 1},
		"a worker complains":      {entries: whole, journal: []note{{What: "violation"}}, other: 1},
		"fenced out": {entries: whole, journal: []note{said("fenced", 2, 1), said("refused", 2, 1)}, fenced: 1,
			refuse: 1},
	} {
		got, findings := judge(c.entries, c.journal, arrived, c.poison, c.strict)
		want := counts{lost: c.lost, doubled: c.doubled, otherViolation: c.other, redone: c.redone, fenced: c.fenced,
			refused: c.refuse}
		if got != want || len(findings) != c.lost+c.doubled+c.other {
			t.Errorf("%s: %+v, %q, want %+v", name, got, findings, want)
		}
	}
}
