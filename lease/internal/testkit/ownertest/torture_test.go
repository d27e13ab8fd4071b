// SPDX-License-Identifier: Apache-2.0

// The torture of the group in memory, correct and broken: each fault has to be found.

package ownertest

import (
	"maps"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stopbank/stopbank/lease"
)

func TestTortureOwners(t *testing.T) {
	TortureIn(t, synctest.Test, func(_ testing.TB, partitions int) Group { return newPlain("", partitions) })
}

// torment lets a group live, in virtual time, and returns what was found.
func torment(t *testing.T, seed uint64, fault string) (text string) {
	synctest.Test(t, func(t *testing.T) {
		text = watch(t, func(t testing.TB) {
			newTorture(t, new(sync.RWMutex), seed, 1).run(func(_ testing.TB, partitions int) Group { return newPlain(fault, partitions) })
		})
	})
	return text
}

func TestTortureHasTeeth(t *testing.T) {
	for seed := range uint64(3) {
		if text := torment(t, seed, ""); text != "" {
			t.Errorf("the sound one, seed %d: %s", seed, text)
		}
	}
	for _, fault := range []string{
		"the dead keep what they have", "a member that hears nothing ends", "what is given back is kept",
		"who comes first has all",
	} {
		t.Run(fault, func(t *testing.T) {
			if text := torment(t, 0, fault); text == "" {
				t.Error("not found")
			}
		})
	}
}

// Each way in which the account can find something, and what is no fault.
func TestAccount(t *testing.T) {
	type try struct {
		holder, payload string
		token           lease.Token
		want            string
	}
	type tally = map[string]int
	const letter, rest = "letter", "rest"
	for name, c := range map[string]struct {
		tries []try
		want  tally
	}{
		"in order": {tries: []try{{"a", "0", 1, sayDone}, {"a", "1", 2, sayFail}, {"a", "1", 2, sayDone},
			{"b", "2", 9, sayPermanent}, {"b", "2", 0, letter}, {"", "", 0, rest}}},
		"again, after a death": {tries: []try{{"a", "0", 1, sayDone}, {"b", "0", 2, sayDone}}, want: tally{redone: 1}},
		"who lost it is refused": {tries: []try{{"a", "0", 1, sayDone}, {"b", "0", 2, sayDone},
			{"a", "0", 1, sayFenced}}, want: tally{redone: 1, refused: 1}},
		"given up twice": {tries: []try{{"a", "0", 1, sayDone}, {"a", "1", 2, sayFail}, {"a", "1", 2, sayDone},
			{"b", "2", 0, letter}, {"b", "2", 0, letter}}},
		"again, under the same token": {tries: []try{{"a", "0", 1, sayDone}, {"a", "0", 1, sayDone}}, want: tally{doubled: 1}},
		"again, after a rest": {
			tries: []try{{"a", "0", 1, sayDone}, {"a", "1", 2, sayFail}, {"a", "1", 2, sayDone}, {"b", "2", 0, letter},
				{"", "", 0, rest}, {"b", "0", 7, sayDone}},
			want: tally{doubled: 1},
		},
		"one token for two members":  {tries: []try{{"a", "0", 1, sayDone}, {"b", "0", 1, sayDone}}, want: tally{doubled: 1, other: 1}},
		"one token for two records":  {tries: []try{{"a", "0", 1, sayDone}, {"a", "1", 1, sayFail}}, want: tally{other: 1}},
		"one is left out":            {tries: []try{{"a", "1", 1, sayDone}}, want: tally{disordered: 1}},
		"given up before its turn":   {tries: []try{{"a", "2", 0, letter}}, want: tally{disordered: 1}},
		"given up without a reason":  {tries: []try{{"a", "0", 0, letter}}, want: tally{lost: 1}},
		"committed, not carried out": {tries: []try{{"a", "0", 1, sayDone}, {"", "", 0, rest}}, want: tally{lost: 2}},
		"out of nowhere":             {tries: []try{{"a", "9", 1, sayPermanent}}, want: tally{other: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAccount()
			a.writes("p", "k", "0", "", 0)
			a.writes("p", "k", "1", sayFail, 1)
			a.writes("p", "k", "2", sayPermanent, 1)
			for _, try := range c.tries {
				switch try.want {
				case letter:
					a.letter(try.holder, try.payload, "why")
				case rest:
					a.rest()
				default:
					if got := a.attempt(try.holder, try.payload, try.token); got != try.want {
						t.Errorf("%s for %s, token %d: %s, want %s", try.payload, try.holder, try.token, got, try.want)
					}
				}
			}
			delete(a.counts, "records")
			delete(a.counts, deadLetters)
			if !maps.Equal(a.counts, c.want) {
				t.Errorf("counted %v, want %v", a.counts, c.want)
			}
		})
	}
}
