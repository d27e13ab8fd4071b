// SPDX-License-Identifier: Apache-2.0

// What is the same for all stores: names, the way in, and the order of a replay of all.

package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/dlq"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPropertyIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := deadletter.ID{Partition: rapid.String().Draw(t, "partition"), Offset: rapid.Int64().Draw(t, "offset")}
		if got, err := deadletter.ParseID(id.String()); err != nil || got != id {
			t.Fatalf("%q: %+v, %v", id.String(), got, err)
		}
	})
	for _, text := range []string{"", "orders/3", "orders/3@", "@", "orders/3@x", "orders/3@01", "orders/3@+1",
		"orders/3@9223372036854775808"} {
		if id, err := deadletter.ParseID(text); !errors.Is(err, lease.ErrInvalid) ||
			!strings.Contains(err.Error(), fmt.Sprintf("%q", text)) {
			t.Errorf("%q: %+v, %v", text, id, err)
		}
	}
}

// What a dispatcher gives up is kept with all that is known of it, and what it tells again after a crash changes nothing.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, desk := &dispatch.Log{}, &dlq.Memory{}
		log.Append("ann", []byte("bad"))
		log.Append("ann", []byte("good"))
		ledger, err := lease.NewMemory(lease.Config{MaxRetries: 2})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		d, err := dispatch.New(dispatch.Partition{Name: "orders/3", Ledger: ledger, Source: log}, dispatch.Config{
			DeadLetter: deadletter.Keep(desk),
			Handler: func(_ context.Context, job dispatch.Job) error {
				if string(job.Record.Payload) == "bad" {
					return errors.New("no such \x00 customer")
				}
				stop()
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Run(ctx); err != nil {
			t.Fatal(err)
		}
		got, err := desk.Get(t.Context(), deadletter.ID{Partition: "orders/3", Offset: 0})
		if err != nil || got.Attempts != 3 || got.Failure != "no such \uFFFD customer" || got.Size != 3 ||
			string(got.Record.Payload) != "bad" || got.At.IsZero() {
			t.Errorf("%+v, %v", got, err)
		}
		if err := deadletter.Keep(desk)(t.Context(), dispatch.DeadLetter{Partition: "orders/3", Record: got.Record}); err != nil {
			t.Error(err)
		}
		again, err := desk.Get(t.Context(), got.ID())
		if diff := cmp.Diff(got, again); diff != "" || err != nil {
			t.Errorf("told again: %v (-was +is):\n%s", err, diff)
		}
	})
}

// orderError is an error as they are written by mistake: a nil one is not nil once it is an error, and its methods panic.
type orderError struct{ id string }

func (e *orderError) Error() string { return e.id }

// hostile is an error whose methods panic.
type hostile struct{}

func (hostile) Error() string { panic("no text") }

// An error that cannot be asked what it is stops no key: the record is given up, and its letter says what could be said.
func TestErrorsThatPanicStopNoKey(t *testing.T) {
	for want, failure := range map[string]error{
		"dispatch: the error is a nil *deadletter_test.orderError":                                (*orderError)(nil),
		"dispatch: panic: the methods of an error of type deadletter_test.hostile panic: no text": hostile{},
	} {
		synctest.Test(t, func(t *testing.T) {
			log, desk := &dispatch.Log{}, &dlq.Memory{}
			for range 3 {
				log.Append("ann", nil)
			}
			ledger, err := lease.NewMemory(lease.Config{MaxRetries: 1})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			d, err := dispatch.New(dispatch.Partition{Name: "orders/3", Ledger: ledger, Source: log}, dispatch.Config{
				DeadLetter: deadletter.Keep(desk), Observer: dispatch.NewLogger(slog.New(slog.DiscardHandler)),
				Handler: func(_ context.Context, job dispatch.Job) error {
					switch job.Record.Offset {
					case 0:
						return failure
					case 1:
						panic(failure)
					}
					stop()
					return nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(time.Hour, stop)
			if err := d.Run(ctx); err != nil {
				t.Fatal(err)
			}
			s := d.Stats()
			got, err := desk.Get(t.Context(), deadletter.ID{Partition: "orders/3", Offset: 0})
			if err != nil || got.Failure != want || s.Floor != 3 || s.GaveUp != 2 || s.DeadLetterFailed > 0 || s.ObserverPanics > 0 {
				t.Errorf("D5: %q, %v; %+v", got.Failure, err, s)
			}
		})
	}
}

// What cannot be kept is refused, and not taken for a letter of another dispatcher.
func TestKeepRefuses(t *testing.T) {
	var desk dlq.Memory
	var invalid *lease.InvalidError
	if err := deadletter.Keep(&desk)(t.Context(), dispatch.DeadLetter{Record: dispatch.Record{Domain: "ann"}}); !errors.As(err,
		&invalid) || invalid.Field != "deadletter.DeadLetter.Partition" {
		t.Errorf("a letter of no partition: %v", err)
	}
	if _, err := deadletter.ReplayAll(t.Context(), nil, deadletter.Filter{}); !errors.As(err, &invalid) ||
		invalid.Field != "deadletter.store" {
		t.Errorf("no store: %v", err)
	}
	if _, err := deadletter.ReplayAll(t.Context(), (*dlq.Memory)(nil), deadletter.Filter{}); !errors.As(err, &invalid) ||
		invalid.Field != "deadletter.store" {
		t.Errorf("a nil *Memory: %v", err)
	}
	if deadletter.Keep(nil) != nil || deadletter.Keep((*dlq.Memory)(nil)) != nil {
		t.Error("a receiver without a store")
	}
	for l, err := range desk.List(t.Context(), deadletter.Filter{}) {
		t.Errorf("kept: %v, %v", l.ID(), err)
	}
}

// moody is a store whose replays of some letters fail.
type moody struct {
	dlq.Memory
	fails func(deadletter.ID) error
}

func (m *moody) Replay(ctx context.Context, id deadletter.ID) error {
	if err := m.fails(id); err != nil {
		return err
	}
	return m.Memory.Replay(ctx, id)
}

// Whatever fails, what was replayed of a key comes before all that is left of it.
func TestPropertyReplayAllKeepsTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		appended := map[string][]int64{}
		broken := map[deadletter.ID]bool{}
		m := &moody{fails: func(id deadletter.ID) error {
			if broken[id] {
				return errors.New("the source is full")
			}
			return nil
		}}
		m.Append = func(_ context.Context, partition string, r dispatch.Record) error {
			key := partition + " " + r.Domain
			original, err := deadletter.ParseID(string(r.Headers[0].Value))
			appended[key] = append(appended[key], original.Offset)
			return err
		}
		n := rapid.IntRange(0, 30).Draw(t, "letters")
		want := deadletter.Report{}
		failed := map[string]bool{}
		for _, offset := range rapid.Permutation(sequence(n)).Draw(t, "order") {
			l := letterAt(offset)
			if err := m.Put(ctx, l); err != nil {
				t.Fatal(err)
			}
		}
		for _, partition := range []string{"a", "b"} {
			for i := range n {
				l := letterAt(int64(i))
				if l.Partition != partition {
					continue
				}
				key := partition + " " + l.Record.Domain
				parked := rapid.IntRange(0, 9).Draw(t, "parked") == 0
				broken[l.ID()] = rapid.IntRange(0, 4).Draw(t, "broken") == 0
				switch {
				case parked:
					if err := m.Park(ctx, l.ID(), ""); err != nil {
						t.Fatal(err)
					}
					want.Parked++
				case failed[key]:
					want.Behind++
				case broken[l.ID()]:
					failed[key] = true
					want.Failed++
				default:
					want.Replayed++
				}
			}
		}
		report, err := deadletter.ReplayAll(ctx, m, deadletter.Filter{})
		if report != want || (err != nil) != (want.Failed > 0) {
			t.Fatalf("L15: %+v, %v; want %+v", report, err, want)
		}
		for l, err := range m.List(ctx, deadletter.Filter{}) {
			key := l.Partition + " " + l.Record.Domain
			if err != nil || !l.Parked && len(appended[key]) > 0 && slices.Max(appended[key]) > l.Record.Offset {
				t.Fatalf("L15: %s is left behind %v of its key: %v", l.ID(), appended[key], err)
			}
		}
		for key, offsets := range appended {
			if !slices.IsSorted(offsets) {
				t.Fatalf("L15: %s: %v", key, offsets)
			}
		}
	})
}

func sequence(n int) []int64 {
	all := make([]int64, n)
	for i := range all {
		all[i] = int64(i)
	}
	return all
}

// letterAt is one of two partitions with two keys each.
func letterAt(offset int64) deadletter.Letter {
	return deadletter.Letter{Partition: string('a' + rune(offset%2)),
		Record: dispatch.Record{Domain: fmt.Sprint("key-", offset/2%2), Offset: offset}}
}

// A replay of all does not chase what dies anew, takes a letter that somebody else replayed for done, and ends with its context.
func TestReplayAllEnds(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	m := &moody{}
	next := int64(100)
	m.fails = func(id deadletter.ID) error {
		switch id.Offset {
		case 1:
			return &deadletter.NotDeadError{ID: id, Fate: deadletter.Replayed}
		case 3:
			stop()
		}
		return nil
	}
	var dead []deadletter.Letter
	m.Append = func(_ context.Context, partition string, r dispatch.Record) error { // it dies at once
		r.Offset = next
		next++
		dead = append(dead, deadletter.Letter{Partition: partition, Record: r})
		return nil
	}
	for offset := range int64(6) {
		if err := m.Put(t.Context(), deadletter.Letter{Partition: "p",
			Record: dispatch.Record{Domain: "d", Offset: offset}}); err != nil {
			t.Fatal(err)
		}
	}
	report, err := deadletter.ReplayAll(ctx, m, deadletter.Filter{})
	if want := (deadletter.Report{Replayed: 3, Gone: 1}); report != want || !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v; want %+v", report, err, want)
	}
	if len(dead) != 3 {
		t.Errorf("%d appended", len(dead))
	}
	if _, err := deadletter.ReplayAll(t.Context(), m, deadletter.Filter{Limit: math.MinInt}); !errors.Is(err, lease.ErrInvalid) {
		t.Errorf("a negative limit: %v", err)
	}
}
