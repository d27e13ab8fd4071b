// SPDX-License-Identifier: Apache-2.0

// Package lettertest is the contract of deadletter.Store as a test suite for authors of stores.
//
//	func TestLetters(t *testing.T) {
//		lettertest.Run(t, func(t testing.TB) lettertest.Desk { … })
//	}
//
// It stores and reads back difficult letters, compares random runs of calls with dlq.Memory, replays concurrently, and breaks
// the connection at each write of each call, before and after the engine has received it.
package lettertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/clip"
	"github.com/stopbank/stopbank/lease/internal/dlq"
)

// Dial connects to an engine, like net.Dialer.DialContext.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Desk is an engine with a source that letters can be replayed to.
type Desk struct {
	// Open returns a store. All stores of a Desk share their letters, like those of several processes. It connects through dial,
	// closes with t.Cleanup, and does not reconnect when a connection breaks.
	Open func(t testing.TB, dial Dial) deadletter.Store
	// Partition has a source.
	Partition string
	// Source returns the records in the source of Partition, oldest first. Offset and Time are ignored.
	Source func(t testing.TB) []dispatch.Record
	// Once promises that a record is appended once, however many failed or concurrent Replay calls there were.
	Once bool
}

// check is one test of the suite.
type check struct {
	name string
	run  func(t testing.TB, desk Desk)
}

// Run runs the suite, with a new Desk for each check.
func Run(t *testing.T, open func(t testing.TB) Desk) {
	t.Helper()
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) { c.run(t, open(t)) })
	}
}

func checks() []check {
	return []check{{"Values", values}, {"Extremes", extremes}, {"List", list}, {"Machine", machine},
		{"AtOnce", atOnce}, {"Broken", broken}}
}

// direct is a Dial without faults.
func direct(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// letter returns an ordinary letter.
func letter(partition, domain string, offset int64) deadletter.Letter {
	payload := fmt.Appendf(nil, "payload of %s@%d", partition, offset)
	return deadletter.Letter{
		Partition: partition, Size: len(payload), Attempts: 3, Failure: "no such customer",
		At: time.Unix(1_700_000_000, 123_000).UTC(),
		Record: dispatch.Record{
			Domain: domain, Offset: offset, Payload: payload, Time: time.Unix(1_600_000_000, 0).UTC(),
			Headers: []dispatch.Header{{Key: "Trace", Value: []byte("one")}, {Key: "Trace", Value: []byte("two")}},
		},
	}
}

// same compares letters, except for the Route, which the store chooses, and the precision of times.
func same(a, b deadletter.Letter) bool {
	for _, l := range []*deadletter.Letter{&a, &b} {
		l.Route = ""
		l.At, l.Record.Time = l.At.UTC().Truncate(time.Microsecond), l.Record.Time.UTC().Truncate(time.Microsecond)
	}
	return reflect.DeepEqual(a, b)
}

// bare returns a letter as List does.
func bare(l deadletter.Letter) deadletter.Letter {
	l.Record.Payload, l.Record.Headers = nil, nil
	return l
}

func put(t testing.TB, s deadletter.Store, letters ...deadletter.Letter) {
	t.Helper()
	for _, l := range letters {
		if err := s.Put(t.Context(), l); err != nil {
			t.Fatalf("Put %s: %v", l.ID(), err)
		}
	}
}

// all returns the result of List.
func all(t testing.TB, s deadletter.Store, filter deadletter.Filter) (found []deadletter.Letter) {
	t.Helper()
	for l, err := range s.List(t.Context(), filter) {
		if err != nil {
			t.Fatalf("List %+v: %v", filter, err)
		}
		found = append(found, l)
	}
	return found
}

// call makes the call of that name about a letter.
func call(ctx context.Context, name string, s deadletter.Store, l deadletter.Letter) (got deadletter.Letter, err error) {
	switch name {
	case "Put":
		err = s.Put(ctx, l)
	case "Get":
		got, err = s.Get(ctx, l.ID())
	case "Park":
		err = s.Park(ctx, l.ID(), fmt.Sprint("later ", l.Attempts))
	case "Unpark":
		err = s.Unpark(ctx, l.ID())
	case "Replay":
		err = s.Replay(ctx, l.ID())
	case "Discard":
		err = s.Discard(ctx, l.ID())
	}
	return got, err
}

// values: a letter is read back unchanged, also by another store.
func values(t testing.TB, desk Desk) {
	s, other := desk.Open(t, direct), desk.Open(t, direct)
	odd := letter(desk.Partition, "\x1b[31m \xff ü", 1)
	odd.Record.Payload, odd.Size = []byte{0, 0xff, '\n', 0x1b}, 4
	odd.Record.Headers = []dispatch.Header{{Key: "empty", Value: []byte{}}, {Key: "nil"},
		{Key: "ünïcode", Value: []byte("\x00\xff")}}
	odd.Failure = clip.Text("two\nlines \x00 \xff and ü")
	least := deadletter.Letter{Partition: "another one/7", Record: dispatch.Record{Domain: "d", Offset: -1},
		At: time.Unix(1, 0).UTC()}
	empty := letter(desk.Partition, "d", 0)
	empty.Record.Payload, empty.Size, empty.Record.Headers, empty.Record.Time = []byte{}, 0, nil, time.Time{}
	long := letter(desk.Partition, string(make([]byte, 300)), 1<<62)
	letters := []deadletter.Letter{odd, least, empty, long}
	put(t, s, letters...)
	for _, want := range letters {
		got, err := other.Get(t.Context(), want.ID())
		if err != nil || !same(got, want) {
			t.Errorf("got %+v, %v\nwant %+v", got, err, want)
		}
	}
	again := odd
	again.Failure, again.At = "told a second time", time.Unix(2_000_000_000, 0)
	put(t, other, again)
	if got, err := s.Get(t.Context(), odd.ID()); err != nil || !same(got, odd) {
		t.Errorf("a letter that was put twice is %+v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Put(ctx, letter(desk.Partition, "d", 5)); !errors.Is(err, context.Canceled) {
		t.Errorf("Put with a context that is done: %v", err)
	}
}

// extremes: whatever a producer or a source chose for a field, in its whole range, keeps no letter from being stored, and hides no other.
func extremes(t testing.TB, desk Desk) {
	s, other := desk.Open(t, direct), desk.Open(t, direct)
	letters := []deadletter.Letter{}
	for _, at := range []time.Time{
		time.UnixMilli(math.MinInt64), time.UnixMilli(math.MaxInt64), time.Unix(0, math.MinInt64), time.Unix(0, 0), time.Unix(-1<<40, 1),
	} {
		l := letter(desk.Partition, "d", int64(len(letters)))
		l.Record.Time = at
		letters = append(letters, l)
	}
	for _, offset := range []int64{math.MinInt64, math.MinInt64 + 1, -1, math.MaxInt64 - 1, math.MaxInt64} {
		letters = append(letters, letter(desk.Partition, "d", offset))
	}
	for _, text := range []string{" ", "*", ">", ".", "a.b", "a b", "\x00", "\xff\xfe", "\r\nPUB x 1", strings.Repeat("k", 4000), strings.Repeat("\x00", 4000)} {
		l := letter(desk.Partition, text, int64(len(letters)))
		l.Record.Headers = []dispatch.Header{{Key: text, Value: []byte(text)}, {Key: text}, {Key: "", Value: []byte{}}}
		letters = append(letters, l)
	}
	many := letter(desk.Partition, "d", int64(len(letters)))
	many.Record.Headers = slices.Repeat([]dispatch.Header{{Key: "", Value: nil}}, 50_000)
	letters = append(letters, many)
	put(t, s, letters...)
	listed := map[deadletter.ID]deadletter.Letter{}
	for _, l := range all(t, other, deadletter.Filter{}) {
		listed[l.ID()] = l
	}
	for _, want := range letters {
		got, err := other.Get(t.Context(), want.ID())
		got.Record.Time, want.Record.Time = time.Time{}, time.Time{} // engines keep times of their own range
		if err != nil || !same(got, want) || listed[want.ID()].Record.Domain != want.Record.Domain {
			t.Errorf("L15: %s of %q at %v: %.300v", want.ID(), want.Record.Domain, want.Record.Time, err)
		}
	}
	if len(listed) != len(letters) {
		t.Errorf("L15: %d letters are listed of %d", len(listed), len(letters))
	}
}

// list: in order, filtered, and with other calls during the walk.
func list(t testing.TB, desk Desk) {
	s := desk.Open(t, direct)
	var want []deadletter.Letter
	for _, partition := range []string{"b/1", "a/2", "a/10"} {
		for _, offset := range []int64{10, 9, 100, 1 << 40} {
			l := letter(partition, fmt.Sprint("key-", offset%2), offset)
			put(t, s, l)
			want = append(want, bare(l))
		}
	}
	slices.SortFunc(want, func(a, b deadletter.Letter) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Record.Offset, b.Record.Offset))
	})
	for _, filter := range []deadletter.Filter{
		{}, {Limit: 5}, {Partition: "a/2"}, {Domain: "key-1"}, {Partition: "a/10", Domain: "key-0"},
		{Partition: "a/10", Domain: "key-0", Limit: 1}, {Partition: "a"}, {Domain: "nobody"},
	} {
		var expect []deadletter.Letter
		for _, l := range want {
			if dlq.Matches(filter, l) && (filter.Limit == 0 || len(expect) < filter.Limit) {
				expect = append(expect, l)
			}
		}
		if got := all(t, s, filter); !slices.EqualFunc(got, expect, same) {
			t.Errorf("List %+v: %d letters, want %d: %+v", filter, len(got), len(expect), got)
		}
	}
	n := 0
	for l, err := range s.List(t.Context(), deadletter.Filter{}) {
		if err == nil {
			err = s.Discard(t.Context(), l.ID())
		}
		if err != nil {
			t.Fatalf("Discard in a List: %v", err)
		}
		n++
	}
	if left := all(t, s, deadletter.Filter{}); n != len(want) || len(left) > 0 {
		t.Errorf("%d of %d letters listed while they were discarded, %d left", n, len(want), len(left))
	}
	for _, err := range s.List(t.Context(), deadletter.Filter{Limit: -1}) {
		if !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("a negative limit: %v", err)
		}
	}
}

// machine: random calls, compared with dlq.Memory, and what they append to the source.
func machine(t testing.TB, desk Desk) {
	stores := []deadletter.Store{desk.Open(t, direct), desk.Open(t, direct)}
	before := len(desk.Source(t))
	var cases int64
	var appended []dispatch.Record
	rapid.Check(t, func(rt *rapid.T) {
		cases++
		model := &dlq.Memory{Append: func(_ context.Context, _ string, r dispatch.Record) error { appended = append(appended, r); return nil }}
		for step := range rapid.IntRange(1, 40).Draw(rt, "steps") {
			s := stores[rapid.IntRange(0, 1).Draw(rt, "store")]
			domain := fmt.Sprintf("case-%d-%d", cases, rapid.IntRange(0, 1).Draw(rt, "domain"))
			l := letter(desk.Partition, domain, cases*100+rapid.Int64Range(0, 1).Draw(rt, "offset"))
			l.Attempts = step
			if l.Record.Offset%2 == 1 { // it was replayed before
				l.Record.Headers = append(l.Record.Headers, dispatch.Header{Key: dlq.ReplayOf, Value: []byte("orders/3@1")})
			}
			name := rapid.SampledFrom([]string{"Put", "Put", "Put", "Get", "Park", "Unpark", "Replay", "Discard",
				"List"}).Draw(rt, "call")
			if name == "List" {
				filter := deadletter.Filter{Domain: domain}
				if got, want := all(t, s, filter), all(t, model, filter); !slices.EqualFunc(got, want, same) {
					rt.Fatalf("List: %+v, want %+v", got, want)
				}
				continue
			}
			got, err := call(t.Context(), name, s, l)
			want, wanted := call(t.Context(), name, model, l)
			if !same(got, want) || !reflect.DeepEqual(err, wanted) {
				rt.Fatalf("L15: %s %s: %+v, %v; want %+v, %v", name, l.ID(), got, err, want, wanted)
			}
		}
	})
	compare(t, desk.Source(t)[before:], appended)
}

// compare checks the fields of a record that the source must keep. Headers of different names may come in any order.
func compare(t testing.TB, got, want []dispatch.Record) {
	t.Helper()
	for _, records := range [][]dispatch.Record{got, want} {
		for i := range records {
			records[i].Offset, records[i].Time = 0, time.Time{}
			slices.SortStableFunc(records[i].Headers, func(a, b dispatch.Header) int { return cmp.Compare(a.Key, b.Key) })
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the source has %+v\nwant %+v", got, want)
	}
}

// atOnce: concurrent replays, discards and puts of one letter.
func atOnce(t testing.TB, desk Desk) {
	const sides = 6
	stores := []deadletter.Store{desk.Open(t, direct), desk.Open(t, direct)}
	total := 0
	for round := range int64(8) {
		l := letter(desk.Partition, "ann", round)
		put(t, stores[0], l)
		var replayed, discarded, failed atomic.Int64
		var group sync.WaitGroup
		for side := range sides {
			group.Go(func() {
				s, call, done := stores[side%2], deadletter.Store.Replay, &replayed
				if side == 5 && round%2 == 1 {
					call, done = deadletter.Store.Discard, &discarded
				}
				switch err := call(s, t.Context(), l.ID()); {
				case err == nil:
					done.Add(1)
				case !errors.Is(err, deadletter.ErrNotDead):
					failed.Add(1)
				}
				if err := s.Put(t.Context(), l); err != nil {
					failed.Add(1)
				}
			})
		}
		group.Wait()
		n := len(desk.Source(t)) - total
		total += n
		// A Discard during a Replay may succeed although the record is on its way.
		r, d := replayed.Load(), discarded.Load()
		if failed.Load() > 0 || r+d == 0 || int64(n) < r || n > sides || desk.Once && (r+d != 1 || n > 1) {
			t.Errorf("round %d: %d replays and %d discards succeeded, %d calls failed, %d records appended", round, r, d,
				failed.Load(), n)
		}
		if left := all(t, stores[1], deadletter.Filter{}); len(left) > 0 {
			t.Errorf("round %d: left: %+v", round, left)
		}
	}
}
