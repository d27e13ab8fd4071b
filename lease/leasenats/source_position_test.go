// SPDX-License-Identifier: Apache-2.0

package leasenats_test

// Of two owners of a position, the later one can commit.

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/leasenats"
)

func TestSourcePosition(t *testing.T) {
	server := single(t, t.TempDir(), 0)
	nc := connect(t, server.ClientURL())
	orders(t, nc, 50, 5)
	first := source(t, nc, nil)
	if err := first.Commit(ctx, 3); !strings.Contains(fmt.Sprint(err), "leasenats: stream ") {
		t.Errorf("without a claim: %v", err)
	}
	wantFloor(t, first, 1)
	for _, floor := range []int64{5, 4, 5, 20} {
		if err := first.Commit(ctx, floor); err != nil {
			t.Error(err)
		}
	}

	// Another partition has a position of its own.
	other := source(t, nc, func(cfg *leasenats.SourceConfig) { cfg.Partition = "other" })
	wantFloor(t, other, 1)

	// The later claim wins, at once and for good.
	second := source(t, nc, nil)
	wantFloor(t, second, 20)
	err := first.Commit(ctx, 30)
	if !errors.Is(err, dispatch.ErrLost) || !strings.Contains(err.Error(), "partition all lost") {
		t.Errorf("the former owner: %v", err)
	}
	if err := second.Commit(ctx, 25); err != nil {
		t.Error(err)
	}
	wantFloor(t, first, 25) // it comes back
	if err := second.Commit(ctx, 26); !errors.Is(err, dispatch.ErrLost) {
		t.Errorf("the former owner: %v", err)
	}

	// A write whose reply was lost is recognised by the owner's name in the key.
	js, _ := jetstream.New(nc)
	kv := must(js.KeyValue(ctx, "positions"))(t)
	entry, err := kv.Get(ctx, "source-ORDERS.all")
	if err != nil {
		t.Fatal(err)
	}
	_, owner, _ := strings.Cut(string(entry.Value()), " ")
	must(kv.Put(ctx, "source-ORDERS.all", []byte("27 "+owner)))(t)
	if err := first.Commit(ctx, 28); err != nil {
		t.Errorf("after a lost reply: %v", err)
	}

	must(kv.Put(ctx, "source-ORDERS.all", []byte("rubbish")))(t)
	if _, err := second.Committed(ctx); !strings.Contains(fmt.Sprint(err), "leasenats: stream ") {
		t.Errorf("rubbish: %v", err)
	}
	noError(t, kv.Delete(ctx, "source-ORDERS.all"))
	wantFloor(t, second, 1)
}

func wantFloor(t *testing.T, s *leasenats.Source, want int64) {
	t.Helper()
	if floor, err := s.Committed(ctx); floor != want || err != nil {
		t.Errorf("committed %d, %v, want %d", floor, err, want)
	}
}
