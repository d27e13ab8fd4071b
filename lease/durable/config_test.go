// SPDX-License-Identifier: Apache-2.0

// What is refused before the store is asked, and what an observer is told.

package durable_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	for _, domain := range []string{"", strings.Repeat("x", 1<<16)} {
		if _, err := l.Offer(ctx, domain, 1); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("a domain of %d bytes: %v", len(domain), err)
		}
		if _, err := l.Inspect(ctx, domain); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("Inspect of %d bytes: %v", len(domain), err)
		}
	}
	if _, err := l.Offer(ctx, strings.Repeat("x", 1<<16-1), 1); err != nil {
		t.Error(err)
	}
	if _, err := l.SucceedIn(ctx, (*durable.MemStore)(nil), lease.Lease{Domain: "A", Token: 1}); !errors.Is(err, lease.ErrInvalid) {
		t.Errorf("SucceedIn a nil *MemStore: %v", err)
	}
	_, offer := l.Offer(nil, "A", 1)  //nolint:staticcheck // refused, not a panic
	_, inspect := l.Inspect(nil, "A") //nolint:staticcheck // the same
	errs := map[string]error{"Offer": offer, "Inspect": inspect, "Ready": nil}
	errs["Compact"] = l.Compact(nil, 1)         //nolint:staticcheck // the same
	for _, errs["Ready"] = range l.Ready(nil) { //nolint:staticcheck // the same
	}
	for call, err := range errs {
		var invalid *lease.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "ctx" {
			t.Errorf("%s with a nil context: %v", call, err)
		}
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

func TestObserver(t *testing.T) {
	o := &observed{t: t}
	store := &faulty{}
	o.l = open(t, durable.Config{Store: store, Observer: o})
	held := acquire(t, o.l, "A", 3)
	must(o.l.Offer(ctx, "A", 4))(t)
	succeed(t, o.l, held)
	if _, err := o.l.Succeed(ctx, "A", 5); !errors.Is(err, lease.ErrLeaseNotFound) {
		t.Fatal(err)
	}
	store.swap = once("A", refused)
	if _, err := o.l.Offer(ctx, "A", 6); !errors.Is(err, durable.ErrStore) {
		t.Fatal(err)
	}
	noError(t, o.l.Compact(ctx, 2))
	want := []lease.Event{
		{Op: "try_acquire", Result: "acquired", Domain: "A", Offset: 3, Token: held.Token},
		{Op: "offer", Result: "enqueued", Domain: "A", Offset: 4},
		{Op: "succeed", Result: "next_hint", Domain: "A", Offset: 3, Token: held.Token},
		{Op: "succeed", Result: "lease_not_found", Domain: "A", Token: 5, Err: &lease.LeaseNotFoundError{Domain: "A", Got: 5}},
		{Op: "offer", Result: "error", Domain: "A", Offset: 6},
		{Op: "compact", Result: "ok", Offset: 2},
	}
	if len(o.events) == len(want) {
		if o.events[4].Err == nil {
			t.Error("no error of the store")
		}
		o.events[4].Err = nil
	}
	if diff := cmp.Diff(want, o.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
