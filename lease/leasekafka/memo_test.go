// SPDX-License-Identifier: Apache-2.0

package leasekafka

// Metadata is decoded as it was encoded, anything else is rejected, and the right parts are left out if there is too little room.

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// drawMemo draws the state above a floor, with at most many offsets.
func drawMemo(t *rapid.T, floor int64, many int) memo {
	m := memo{epoch: rapid.Uint64Range(0, mostEpoch).Draw(t, "epoch")}
	offset := floor
	for range rapid.IntRange(0, many).Draw(t, "offsets") {
		offset += rapid.Int64Range(0, 3).Draw(t, "gap")
		a := attempt{offset: offset, at: rapid.Int64Range(0, mostTime).Draw(t, "at")}
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
			m.gaveUp = append(m.gaveUp, offset)
		case 1:
			a.retries = rapid.Int32Range(1, 1<<31-1).Draw(t, "retries")
			m.tried = append(m.tried, a)
			if rapid.Bool().Draw(t, "runs") {
				a.running, a.domain = true, "tried "+rapid.StringN(1, 20, mostDomain-30).Draw(t, "domain")+string(rune('a'+len(m.running)))
				m.running = append(m.running, a)
			}
		case 2:
			a.running, a.domain = true, "new "+rapid.StringN(1, 20, mostDomain-30).Draw(t, "domain")+string(rune('a'+len(m.running)))
			m.running = append(m.running, a)
		default:
			last := offset + rapid.Int64Range(0, 5).Draw(t, "length")
			m.done = m.done.add(offset, last)
			offset = last
		}
		offset++
	}
	names := map[string]bool{}
	m.running = slices.DeleteFunc(m.running, func(a attempt) bool { // a domain has one lease
		twice := names[a.domain]
		names[a.domain] = true
		return twice
	})
	return m
}

func TestPropertyMemoIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		floor := rapid.Int64Range(0, 1<<40).Draw(t, "floor")
		m := drawMemo(t, floor, 60)
		text := m.text(floor)
		got, wrong := readMemo(text, floor)
		if diff := cmp.Diff(m, got, cmp.AllowUnexported(memo{}, span{}, attempt{})); wrong != "" || diff != "" {
			t.Fatalf("%s: %s (-want +got)\n%s", text, wrong, diff)
		}
		for _, r := range text {
			if r < ' ' || r > '~' {
				t.Fatalf("%q in %q", r, text)
			}
		}
		if _, wrong := readMemo(text, floor+1); wrong == "" {
			t.Fatal("read with another offset")
		}
		i := rapid.IntRange(len(head), len(text)-1).Draw(t, "damaged")
		other := byte('A')
		if text[i] == other {
			other = 'B'
		}
		if _, wrong := readMemo(text[:i]+string(other)+text[i+1:], floor); wrong == "" {
			t.Fatalf("damaged at %d, and read", i)
		}
	})
}

// The text has at most 4096 characters, however large the state. It is a part of the state: the done offsets nearest to the
// floor, and no entry is left out while a less important one is in.
func TestPropertyMemoIsBounded(t *testing.T) {
	cut := 0
	rapid.Check(t, func(t *rapid.T) {
		m := drawMemo(t, 1000, rapid.SampledFrom([]int{10, 1000, 4000}).Draw(t, "many"))
		text := m.text(1000)
		if len(text) > mostText {
			t.Fatalf("%d characters", len(text))
		}
		got, wrong := readMemo(text, 1000)
		if wrong != "" {
			t.Fatal(wrong)
		}
		whole := len(got.tried) == len(m.tried) && len(got.gaveUp) == len(m.gaveUp) && len(got.done) == len(m.done) &&
			len(got.running) == len(m.running)
		if !whole {
			cut++
			if len(text) < fullText {
				t.Fatalf("something is left out of %d characters", len(text))
			}
		}
		begins := func(what string, have, all int, same bool) {
			if have > all || !same {
				t.Fatalf("%s: %d of %d, and not the first", what, have, all)
			}
		}
		begins("tried", len(got.tried), len(m.tried), slices.Equal(got.tried, m.tried[:min(len(got.tried), len(m.tried))]))
		begins("gave up", len(got.gaveUp), len(m.gaveUp), slices.Equal(got.gaveUp, m.gaveUp[:min(len(got.gaveUp), len(m.gaveUp))]))
		begins("done", len(got.done), len(m.done), slices.Equal(got.done, m.done[:min(len(got.done), len(m.done))]))
		if len(got.tried) < len(m.tried) && len(got.running) > len(m.running) {
			t.Fatal("a running one is in, one that was tried is not")
		}
	})
	if cut == 0 {
		t.Error("nothing was ever left out")
	}
}

// Other programs' metadata is ignored; metadata of this package that cannot be decoded is rejected.
func TestMemoRefuses(t *testing.T) {
	good := memo{epoch: 7, done: spans{{12, 14}}, tried: []attempt{{offset: 10, at: 99, retries: 2}}}
	text := good.text(10)
	for text, want := range map[string]string{
		"":                                       "",
		"AAAAAAAAAAE=":                           "",
		"consumer-7@host":                        "",
		"STOPBANK-1.":                            "",
		"stopbank-3.whatever":                    "version 1 or 2, which this program reads",
		"stopbank-":                              "version 1 or 2, which this program reads",
		"stopbank-1.":                            "no base 64",
		"stopbank-1.!!!!!!!!":                    "no base 64",
		text[:len(text)-4]:                       "damaged",
		text + "A":                               "base 64",
		strings.Replace(text, "1.", "1.AAAA", 1): "damaged",
	} {
		m, wrong := readMemo(text, 10)
		if (want == "") != (wrong == "") || !strings.Contains(wrong, want) || m.epoch != 0 || m.done != nil {
			t.Errorf("%q: %+v, %q, want %q", text, m, wrong, want)
		}
	}
	for what, bad := range map[string]memo{
		"an offset done and tried":     {done: spans{{10, 12}}, tried: []attempt{{offset: 11, retries: 1}}},
		"an offset done and given up":  {done: spans{{10, 12}}, gaveUp: []int64{11}},
		"an offset tried and given up": {tried: []attempt{{offset: 11, retries: 1}}, gaveUp: []int64{11}},
		"a failure less":               {tried: []attempt{{offset: 11}}},
		"an offset twice":              {gaveUp: []int64{11, 11}},
		"spans that touch":             {done: spans{{10, 12}, {13, 14}}},
		"no domain":                    {running: []attempt{{offset: 11, running: true}}},
		"a domain twice": {running: []attempt{{offset: 11, domain: "a", running: true},
			{offset: 12, domain: "a", running: true}}},
		"two beginnings": {tried: []attempt{{offset: 11, at: 1, retries: 1}},
			running: []attempt{{offset: 11, at: 2, domain: "a", running: true}}},
		"a time that is no time":             {tried: []attempt{{offset: 11, at: mostTime + 1, retries: 1}}},
		"a time before all":                  {tried: []attempt{{offset: 11, at: -1, retries: 1}}},
		"an epoch after which there is none": {epoch: mostEpoch + 1},
	} {
		if _, wrong := readMemo(bad.text(10), 10); wrong != "not what this version writes" {
			t.Errorf("%s: %q", what, wrong)
		}
	}
}

func FuzzMemo(f *testing.F) {
	m := memo{
		epoch: 7, done: spans{{12, 14}, {100, 1000}}, gaveUp: []int64{20}, tried: []attempt{{offset: 10, at: 99, retries: 2}},
		running: []attempt{{offset: 10, at: 99, retries: 2, domain: "a", running: true}},
	}
	f.Add(m.text(10), int64(10))
	f.Add("stopbank-1.AAAA", int64(0))
	f.Fuzz(func(t *testing.T, text string, floor int64) {
		floor = max(0, floor)
		m, wrong := readMemo(text, floor)
		switch {
		case wrong != "" && m.epoch+uint64(len(m.done)+len(m.tried)+len(m.running)+len(m.gaveUp)) > 0:
			t.Errorf("%q is refused, and says %+v", text, m)
		case wrong == "" && strings.HasPrefix(text, prefix) && m.text(floor) != text:
			t.Errorf("%q and %q say the same", text, m.text(floor))
		}
	})
}

// A set of spans is the set of its offsets, in the fewest spans.
func TestPropertySpans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s spans
		model := map[int64]bool{}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			first := rapid.Int64Range(0, 80).Draw(t, "first")
			if rapid.IntRange(0, 9).Draw(t, "trim") == 0 {
				s = s.from(first)
				maps.DeleteFunc(model, func(o int64, _ bool) bool { return o < first })
				continue
			}
			last := first + rapid.Int64Range(0, 4).Draw(t, "more")
			s = s.add(first, last)
			for o := first; o <= last; o++ {
				model[o] = true
			}
		}
		runs := 0
		for o := int64(-1); o < 90; o++ {
			if s.has(o) != model[o] {
				t.Fatalf("%d in %v: %v", o, s, s.has(o))
			}
			if model[o] && !model[o-1] {
				runs++
			}
		}
		if runs != len(s) {
			t.Fatalf("%d runs in %v", runs, s)
		}
	})
}
