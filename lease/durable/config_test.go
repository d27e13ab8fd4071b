// SPDX-License-Identifier: Apache-2.0

// What is refused before the store is asked, and what an observer is told.

package durable_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
)

func TestConfig(t *testing.T) {
	store, most := &durable.MemStore{}, math.MaxInt32
	for field, cfg := range map[string]durable.Config{
		"Store":      {},
		"MaxRetries": {Store: store, MaxRetries: most + 1},
		"MaxBacklog": {Store: store, MaxBacklog: -1},
		"MaxCached":  {Store: store, MaxCached: -1},
		"Observer":   {Store: store, Observer: (*observed)(nil)},
	} {
		l, err := durable.New(cfg)
		var invalid *lease.InvalidError
		if l != nil || !errors.As(err, &invalid) || invalid.Field != "durable.Config."+field {
			t.Errorf("%s: %v, %v", field, l, err)
		}
	}
	for want, none := range map[string]durable.Store{
		"lease: durable.Config.Store is nil; allowed: a Store":                     nil,
		"lease: durable.Config.Store is a nil *durable.memStore; allowed: a Store": (*durable.MemStore)(nil),
	} {
		if _, err := durable.New(durable.Config{Store: none}); err == nil || err.Error() != want {
			t.Errorf("no Store: %v", err)
		}
	}
	if _, err := durable.New(durable.Config{Store: store, MaxRetries: -1}); !errors.Is(err, lease.ErrInvalid) {
		t.Errorf("MaxRetries -1: %v", err)
	}
	l := open(t, durable.Config{Store: store})
	if _, err := l.SucceedIn(ctx, (*durable.MemStore)(nil), lease.Lease{Domain: "A", Token: 1}); !errors.Is(err, lease.ErrInvalid) {
		t.Errorf("SucceedIn a nil *MemStore: %v", err)
	}
}

// observed collects events and calls the ledger, which must not be held then.
type observed struct {
	l      lease.Ledger
	t      *testing.T
	events []lease.Event
}

func (o *observed) Observe(e lease.Event) {
	o.events = append(o.events, e)
	if e.Domain != "" {
		if _, err := o.l.Inspect(ctx, e.Domain); err != nil {
			o.t.Error(err)
		}
	}
	panic("an observer's own affair")
}

// An observer hears what the store refused, and may call the ledger, of which nothing is held then. What else it hears, package lease
// tests.
func TestObserver(t *testing.T) {
	o, store := &observed{t: t}, &faulty{}
	o.l = open(t, durable.Config{Store: store, Observer: o})
	held := acquire(t, o.l, "A", 3)
	store.swap = once("A", refused)
	_, err := o.l.Offer(ctx, "A", 6)
	if !errors.Is(err, durable.ErrStore) {
		t.Fatal(err)
	}
	noError(t, o.l.Compact(ctx, 2))
	if want := []lease.Event{
		{Op: "try_acquire", Result: "acquired", Domain: "A", Offset: 3, Token: held.Token},
		{Op: "offer", Result: "error", Domain: "A", Offset: 6, Err: err},
		{Op: "compact", Result: "ok", Offset: 2},
	}; !slices.Equal(o.events, want) {
		t.Errorf("events %+v, want %+v", o.events, want)
	}
}
