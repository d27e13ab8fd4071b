// SPDX-License-Identifier: Apache-2.0

// Records given up, parked and replayed, with a store of the example's own.

package deadletter_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// memory is a Store in memory with the calls of this example. Programs use that of leasepg, leasenats or leasekafka.
type memory struct {
	deadletter.Store
	letters map[deadletter.ID]deadletter.Letter
	source  *dispatch.Log
}

func (m *memory) Put(_ context.Context, letter deadletter.Letter) error {
	m.letters[letter.ID()] = letter
	return nil
}

func (m *memory) List(context.Context, deadletter.Filter) iter.Seq2[deadletter.Letter, error] {
	return func(yield func(deadletter.Letter, error) bool) {
		for _, id := range slices.SortedFunc(maps.Keys(m.letters),
			func(a, b deadletter.ID) int { return cmp.Compare(a.Offset, b.Offset) }) {
			if !yield(m.letters[id], nil) {
				return
			}
		}
	}
}

func (m *memory) Park(_ context.Context, id deadletter.ID, note string) error {
	letter := m.letters[id]
	letter.Parked, letter.Note = true, note
	m.letters[id] = letter
	return nil
}

func (m *memory) Replay(_ context.Context, id deadletter.ID) error {
	letter, ok := m.letters[id]
	if !ok {
		return &deadletter.NotDeadError{ID: id, Fate: deadletter.Unknown}
	}
	m.source.Append(letter.Record.Domain, letter.Record.Payload) // a Log has no headers
	delete(m.letters, id)
	return nil
}

// Three records are given up, one is parked, and the others go back to their source.
func Example() {
	ctx := context.Background()
	letters := &memory{letters: map[deadletter.ID]deadletter.Letter{}, source: &dispatch.Log{}}
	giveUp := deadletter.Keep(letters) // the DeadLetter of a dispatch.Config
	for offset, customer := range []string{"ann", "bob", "ann"} {
		record := dispatch.Record{Domain: customer, Offset: int64(offset), Payload: fmt.Append(nil, "order ", offset)}
		if err := giveUp(ctx, dispatch.DeadLetter{Partition: "orders/3", Record: record,
			Err: errors.New("no such product")}); err != nil {
			fmt.Println(err)
			return
		}
	}
	for letter, err := range letters.List(ctx, deadletter.Filter{Partition: "orders/3"}) {
		fmt.Println(letter.ID(), letter.Record.Domain, letter.Failure, err)
	}

	if err := letters.Park(ctx, deadletter.ID{Partition: "orders/3", Offset: 1}, "bob has moved: call him"); err != nil {
		fmt.Println(err)
		return
	}
	report, err := deadletter.ReplayAll(ctx, letters, deadletter.Filter{})
	fmt.Printf("%+v %v\n", report, err)
	records, _ := letters.source.Fetch(ctx, 0, 10)
	for _, r := range records {
		fmt.Println(r.Domain, string(r.Payload))
	}
	err = letters.Replay(ctx, deadletter.ID{Partition: "orders/3", Offset: 0})
	fmt.Println(err, errors.Is(err, deadletter.ErrNotDead))
	// Output:
	// orders/3@0 ann no such product <nil>
	// orders/3@1 bob no such product <nil>
	// orders/3@2 ann no such product <nil>
	// {Replayed:2 Parked:1 Gone:0 Failed:0 Behind:0} <nil>
	// ann order 0
	// ann order 2
	// deadletter: no letter "orders/3@0": unknown true
}
