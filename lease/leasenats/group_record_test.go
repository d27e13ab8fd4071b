// SPDX-License-Identifier: Apache-2.0

package leasenats

// Members change one record at random, each from the version that it read last: no partition has two holders, the shares become
// fair, and then no partition moves any more.

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// player is a member in the model: the partitions that it works on, and whether each work has returned.
type player struct {
	works map[int]bool
	gone  bool // crashed
	quits bool
}

func TestGroupRecordSharesFairly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := &GroupConfig{Stream: "S", Subject: "s.*", Partitions: rapid.IntRange(1, 12).Draw(t, "partitions")}
		record, _ := decodeGroup(cfg, nil)
		players := map[string]*player{}
		move := func(name string, silent []string) (changed bool) {
			p := players[name]
			before := slices.Clone(record.Members[name].Holds)
			record = record.next(name, time.Second, p.quits, silent, p.works)
			again, wrong := decodeGroup(cfg, record.encode())
			if wrong != "" {
				t.Fatal(wrong)
			}
			record = again
			holds := record.Members[name].Holds
			maps.DeleteFunc(p.works, func(n int, returned bool) bool { return returned && !slices.Contains(holds, n) })
			for _, n := range holds {
				if _, ok := p.works[n]; !ok {
					p.works[n] = false
				}
			}
			for i := len(holds) - 1; i >= max(0, record.share(name)); i-- { // what is too much returns at once
				p.works[holds[i]] = true
				changed = true
			}
			return changed || !slices.Equal(before, holds)
		}
		present := func() (names []string) {
			for name, p := range players {
				if !p.gone {
					names = append(names, name)
				}
			}
			slices.Sort(names)
			return names
		}
		dead := func() (names []string) {
			for name := range record.Members {
				if players[name].gone {
					names = append(names, name)
				}
			}
			return names
		}
		for i := range rapid.IntRange(1, 60).Draw(t, "moves") {
			names := present()
			switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
			case len(names) == 0 || what == 0 && len(players) < 8:
				name := fmt.Sprint("m", i)
				players[name] = &player{works: map[int]bool{}}
			case what == 1:
				players[rapid.SampledFrom(names).Draw(t, "crashes")].gone = true
			case what == 2:
				p := players[rapid.SampledFrom(names).Draw(t, "quits")]
				p.quits = true
				for n := range p.works {
					p.works[n] = true
				}
			case what == 3: // a work returns by itself
				p := players[rapid.SampledFrom(names).Draw(t, "returns")]
				for n := range p.works {
					p.works[n] = true
					break
				}
			case what == 4:
				move(rapid.SampledFrom(names).Draw(t, "buries"), dead())
			default:
				move(rapid.SampledFrom(names).Draw(t, "moves"), nil)
			}
		}

		// Without further joins and crashes, partitions stop moving, and the shares are fair.
		staying := slices.DeleteFunc(present(), func(name string) bool { return players[name].quits })
		if len(staying) == 0 {
			return
		}
		for calm, rounds := 0, 0; calm < 2; rounds++ {
			if rounds > 20+2*cfg.Partitions {
				t.Fatalf("still moving: %s", record.encode())
			}
			calm++
			for _, name := range present() {
				if move(name, dead()) {
					calm = 0
				}
			}
		}
		least, most, sum := cfg.Partitions, 0, 0
		for name, s := range record.Members {
			if p := players[name]; p.gone || p.quits {
				t.Fatalf("%s is still there: %s", name, record.encode())
			}
			least, most, sum = min(least, len(s.Holds)), max(most, len(s.Holds)), sum+len(s.Holds)
		}
		if len(record.Members) != len(staying) || sum != cfg.Partitions || most > least+1 {
			t.Fatalf("%d members share unfairly: %s", len(staying), record.encode())
		}
	})
}

func TestGroupRecordRefuses(t *testing.T) {
	cfg := &GroupConfig{Stream: "S", Subject: "s.*", Partitions: 4}
	const good = `{"format":1,"stream":"S","subject":"s.*","partitions":4,"members":{` +
		`"a":{"beat":1,"session_ms":1000,"holds":[0,2]},"b":{"beat":1,"session_ms":1000,"holds":[1]}}}`
	r, wrong := decodeGroup(cfg, []byte(good))
	if wrong != "" || string(r.encode()) != good {
		t.Fatalf("%q, %s", wrong, r.encode())
	}
	for spoilt, want := range map[string]string{
		"rubbish": "not a group",
		strings.Replace(good, `"format":1`, `"format":3`, 1):                              "format 3",
		strings.Replace(good, `"format":1`, `"format":0`, 1):                              "format 0",
		strings.Replace(good, `"holds":[1]`, `"holds":[2]`, 1):                            "cannot hold partition 2",
		strings.Replace(good, `"holds":[1]`, `"holds":[4]`, 1):                            "cannot hold partition 4",
		strings.Replace(good, `"holds":[1]`, `"holds":[-1]`, 1):                           "cannot hold partition -1",
		strings.Replace(good, `[0,2]`, `[2,0]`, 1):                                        "cannot hold partition 0",
		strings.Replace(good, `"session_ms":1000`, `"session_ms":9000000000000000000`, 1): "session of 9000000000000000000 ms",
		strings.Replace(good, `"session_ms":1000`, `"session_ms":0`, 1):                   "session of 0 ms",
		strings.Replace(good, `"session_ms":1000`, `"session_ms":-1`, 1):                  "session of -1 ms",
		strings.Replace(good, `"partitions":4`, `"partitions":-4`, 1):                     "-4 partitions",
		strings.Replace(good, `"partitions":4`, `"partitions":9000000000000`, 1):          "9000000000000 partitions",
		strings.Replace(good, `"members":{"a"`, `"members":{"a":7,"c"`, 1):                "not a group",
		strings.Replace(good, `"beat":1`, `"beat":18446744073709551616`, 1):               "not a group",
		strings.Replace(good, `"subject":"s.*"`, `"subject":["s.*"]`, 1):                  "not a group",
		strings.Replace(good, `{"beat":1,"session_ms":1000,"holds":[1]}`, `null`, 1):      "session of 0 ms",
	} {
		if _, wrong := decodeGroup(cfg, []byte(spoilt)); !strings.Contains(wrong, want) {
			t.Errorf("%s: %q, want %q", spoilt, wrong, want)
		}
	}
}

func FuzzGroupRecord(f *testing.F) {
	f.Add([]byte(`{"format":1,"partitions":4,"members":{"a":{"beat":18446744073709551615,"session_ms":1000,"holds":[0,2]}}}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		r, wrong := decodeGroup(&GroupConfig{Partitions: 4}, value)
		if wrong != "" {
			return
		}
		r = r.next("a", time.Second, false, nil, nil).next("b", time.Second, false, []string{"a"}, nil)
		if _, wrong := decodeGroup(&GroupConfig{Partitions: 4}, r.encode()); wrong != "" {
			t.Errorf("%q became %s: %s", value, r.encode(), wrong)
		}
	})
}

// A newer version may write further fields of its members. Older versions keep these fields when they write the record, and share
// the partitions with the newer one.
func TestGroupRecordOfANewerProgram(t *testing.T) {
	cfg := &GroupConfig{Stream: "S", Subject: "s.*", Partitions: 4}
	const newer = `{"beat":7,"session_ms":1000,"holds":[0,1,2,3],"rack":{"zone":"b"}}`
	record, wrong := decodeGroup(cfg, []byte(`{"format":1,"stream":"S","subject":"s.*","partitions":4,"colour":"blue",`+
		`"members":{"new":`+newer+`}}`))
	if wrong != "" {
		t.Fatal(wrong)
	}
	for range 2 { // it joins without partitions, and then takes only free ones
		next, wrong := decodeGroup(cfg, record.next("old", time.Second, false, nil, nil).encode())
		if wrong != "" {
			t.Fatal(wrong)
		}
		if record = next; !strings.Contains(string(record.encode()), `"new":`+newer) || len(record.Members["old"].Holds) != 0 {
			t.Fatalf("the older program made of it: %s", record.encode())
		}
	}
	if record.share("new") != 2 || record.share("old") != 2 {
		t.Errorf("shares of %d and %d", record.share("new"), record.share("old"))
	}
	record = record.next("new", time.Second, false, nil, map[int]bool{2: true, 3: true}) // gives two back
	record = record.next("old", time.Second, false, nil, nil)
	if held := record.Members["old"].Holds; !slices.Equal(held, []int{2, 3}) || strings.Contains(string(record.encode()), "rack") {
		t.Errorf("then: %s", record.encode())
	}
}
