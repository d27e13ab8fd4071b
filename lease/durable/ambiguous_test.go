// SPDX-License-Identifier: Apache-2.0

// What becomes of a swap whose reply is lost.

package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/model"
	"github.com/stopbank/stopbank/lease/internal/step"
)

// Every call, whatever becomes of its swap, answers as if nothing had happened, and is carried out once.
func TestLostReplies(t *testing.T) {
	for what, faults := range map[string][]fault{
		"not applied":                        {lostBefore},
		"applied":                            {lostAfter},
		"delayed":                            {delayed},
		"not applied twice":                  {lostBefore, lostBefore},
		"not applied, then applied":          {lostBefore, lostAfter},
		"applied, then not sent":             {lostAfter, refused},
		"delayed, then applied":              {delayed, lostAfter},
		"lost seven times":                   {lostBefore, delayed, lostBefore, lostBefore, lostBefore, lostBefore, lostBefore},
		"applied, and the search fails once": {lostAfter},
	} {
		t.Run(what, func(t *testing.T) {
			store := &faulty{}
			cfg := lease.Config{MaxRetries: 1}
			l := open(t, durable.Config{Store: store, MaxRetries: cfg.MaxRetries})
			m := model.New()
			for _, op := range []step.Kind{
				step.TryAcquire, step.Offer, step.Fail, step.Reclaim, step.Fail, step.AcquireNext, step.Succeed,
			} {
				c := model.Call{Op: op, Domain: "A", Offset: 1}
				if op == step.Offer {
					c.Offset = 2
				}
				if m.Lease != nil {
					c.Token = m.Lease.Token
				}
				store.swap = once("A", faults...)
				if what == "applied, and the search fails once" {
					store.load = once("A", none, lostBefore)
					if op != step.TryAcquire { // whose record is not in memory yet
						store.load = once("A", lostBefore)
					}
				}
				noError(t, m.Accept(cfg, c, c.Do(ctx, l)))
				store.arrive()
				store.swap, store.load = nil, nil
				look := model.Call{Domain: "A"}
				if err := m.Accept(cfg, look, look.Do(ctx, open(t, durable.Config{Store: store}))); err != nil {
					t.Fatalf("after %s: %v", op, err)
				}
			}
		})
	}
}

// However often one writer writes in between, it pushes out one mark.
func TestOneWriterHasOneMark(t *testing.T) {
	store := &faulty{}
	l, other := open(t, durable.Config{Store: store, MaxRetries: 9}), open(t, durable.Config{Store: store})
	held := acquire(t, l, "A", 1)
	store.swap = func(string) fault {
		store.swap = func(string) fault {
			store.swap = nil
			store.mu.Unlock()
			defer store.mu.Lock()
			for i := range int64(60) {
				if _, err := other.Offer(ctx, "A", 100+i); err != nil {
					t.Error(err)
				}
			}
			return none
		}
		return lostAfter
	}
	if f, err := l.Fail(ctx, "A", held.Token); err != nil || f.RetryCount != 1 {
		t.Errorf("%+v, %v", f, err)
	}
	b, _ := get(t, &store.MemStore, "A")
	if len(b) > 200 {
		t.Errorf("a record of %d bytes", len(b))
	}
}

// meddle lets other writers change a domain between a swap that is hit and what follows.
func meddle(t *testing.T, store *faulty, domain string, hit fault, others int) {
	store.swap = func(name string) fault {
		if name != domain {
			return none
		}
		store.swap = func(string) fault { // the swap sent again comes after the others
			store.swap = nil
			store.mu.Unlock()
			defer store.mu.Lock()
			for i := range others {
				if _, err := open(t, durable.Config{Store: store}).Offer(ctx, domain, 1000+int64(i)); err != nil {
					t.Error(err)
				}
			}
			return none
		}
		return hit
	}
}

// The mark is found behind fifteen other writers. Behind more it may have been dropped, and then nothing is guessed.
func TestMarksOfOtherWriters(t *testing.T) {
	for _, c := range []struct {
		hit       fault
		others    int
		ambiguous bool
	}{
		{lostAfter, 0, false}, {lostAfter, 1, false}, {lostAfter, 15, false}, {lostAfter, 16, true}, {lostAfter, 40, true},
		{lostBefore, 1, false}, {lostBefore, 14, false}, {lostBefore, 15, false}, {lostBefore, 16, false},
		{lostBefore, 17, true}, {lostBefore, 40, true},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			store := &faulty{}
			l := open(t, durable.Config{Store: store, MaxRetries: 5})
			held := acquire(t, l, "A", 1)
			for range 20 { // fill the record with marks of writers that are gone
				must(open(t, durable.Config{Store: store, MaxRetries: 50}).Fail(ctx, "A", held.Token))(t)
			}
			before := inspect(t, l, "A").Lease.RetryCount
			l = open(t, durable.Config{Store: store, MaxRetries: 50})
			meddle(t, store, "A", c.hit, c.others)
			f, err := l.Fail(ctx, "A", held.Token)
			v := inspect(t, l, "A")
			switch {
			case c.ambiguous:
				if !errors.Is(err, durable.ErrAmbiguous) || !strings.Contains(err.Error(), `"A"`) || f != (lease.Failure{}) {
					t.Errorf("%+v, %v", f, err)
				}
				applied := 0
				if c.hit == lostAfter {
					applied = 1
				}
				if v.Lease.RetryCount != before+applied {
					t.Errorf("%d retries, want %d", v.Lease.RetryCount, before+applied)
				}
			case err != nil || f != lease.Failure{Status: lease.RetryScheduled, RetryCount: before + 1} ||
				v.Lease.RetryCount != before+1:
				t.Errorf("%+v, %v, and %+v", f, err, v.Lease)
			}
			if len(v.Backlog) != c.others {
				t.Errorf("%d wait, want %d", len(v.Backlog), c.others)
			}
		})
	}
}

// A store that never answers: the call says that it does not know, and the next one finds out.
func TestAmbiguous(t *testing.T) {
	for _, hit := range []fault{lostBefore, delayed} {
		store := &faulty{}
		l := open(t, durable.Config{Store: store})
		held := acquire(t, l, "A", 1)
		store.swap = func(string) fault { return hit }
		_, swaps := store.cost(func() {
			c, err := l.Succeed(ctx, "A", held.Token)
			if !errors.Is(err, durable.ErrAmbiguous) || !strings.Contains(err.Error(), errInjected.Error()) ||
				errors.Is(err, errInjected) {
				t.Errorf("%d: %+v, %v", hit, c, err)
			}
		})
		if swaps != 8 {
			t.Errorf("%d swaps", swaps)
		}
		store.swap = nil
		store.arrive()
		var none *lease.LeaseNotFoundError
		if _, err := l.Succeed(ctx, "A", held.Token); hit == lostBefore && err != nil || hit == delayed &&
			(!errors.As(err, &none) || none.Status != lease.AlreadyProcessed) {
			t.Errorf("%d: %v", hit, err)
		}
	}
}

// What is in the way of the swap sent again is not in sight at first: a store whose reads lag. The old version must not be
// believed, for it is the lost swap itself that is coming.
func TestSearchDoesNotBelieveTheOldVersion(t *testing.T) {
	store := &lagging{}
	l := open(t, durable.Config{Store: store, MaxRetries: 9})
	held := acquire(t, l, "A", 1)
	store.swap = once("A", lostAfter)
	store.old, _, _ = store.MemStore.Load(ctx, "A")
	_, store.version, _ = store.MemStore.Load(ctx, "A")
	store.left = 5
	if f, err := l.Fail(ctx, "A", held.Token); err != nil || f.RetryCount != 1 {
		t.Errorf("%+v, %v", f, err)
	}
	if v := inspect(t, l, "A"); v.Lease.RetryCount != 1 {
		t.Errorf("%+v", v.Lease)
	}
	// For ever out of sight.
	store.swap = once("A", lostAfter)
	store.old, store.version, _ = store.MemStore.Load(ctx, "A")
	store.left = 1 << 20
	if f, err := l.Fail(ctx, "A", held.Token); !errors.Is(err, durable.ErrAmbiguous) {
		t.Errorf("%+v, %v", f, err)
	}
	// A domain that was there and is not any more is no domain never seen.
	store.old, store.version = nil, 0
	if a, err := l.TryAcquire(ctx, "A", 2); !errors.Is(err, durable.ErrStore) {
		t.Errorf("%+v, %v", a, err)
	}
}

// lagging answers Load of A with an old record as long as left lasts.
type lagging struct {
	faulty
	old     []byte
	version uint64
	left    int
}

func (s *lagging) Load(ctx context.Context, name string) ([]byte, uint64, error) {
	if name == "A" && s.left > 0 {
		s.left--
		return s.old, s.version, nil
	}
	return s.faulty.Load(ctx, name)
}

// What the store refuses leaves the ledger as it was, in the store and in memory.
func TestStoreErrors(t *testing.T) {
	store := &faulty{}
	l := open(t, durable.Config{Store: store, MaxRetries: 3})
	held := acquire(t, l, "A", 1)
	before := inspect(t, l, "A")
	for _, hit := range []string{"swap", "load of A", "load of the root"} {
		call := func() error { _, err := l.Fail(ctx, "A", held.Token); return err }
		switch hit {
		case "swap":
			store.swap = once("A", refused)
		case "load of A":
			store.load = once("A", lostBefore)
			call = func() error { _, err := l.AcquireNext(ctx, "A"); return err }
		case "load of the root":
			store.load = once("", lostBefore)
			call = func() error { _, err := l.Offer(ctx, "B", 1); return err }
		}
		if err := call(); !errors.Is(err, durable.ErrStore) || !errors.Is(err, errInjected) {
			t.Errorf("%s: %v", hit, err)
		}
		if diff := cmp.Diff(before, inspect(t, l, "A")); diff != "" {
			t.Errorf("%s (-was +is):\n%s", hit, diff)
		}
	}
	store.load = once("A", lostBefore)
	if _, err := l.Inspect(ctx, "A"); !errors.Is(err, durable.ErrStore) {
		t.Error(err)
	}
	store.load = once("A", lostBefore)
	for item, err := range l.Held(ctx) {
		if !errors.Is(err, durable.ErrStore) || item != (lease.Lease{}) {
			t.Errorf("%+v, %v", item, err)
		}
	}
	if f, err := l.Fail(ctx, "A", held.Token); err != nil || f.RetryCount != 1 {
		t.Errorf("%+v, %v", f, err)
	}
	// A number that could not be drawn is drawn later, and a lost one is not used.
	for _, hit := range []fault{refused, lostBefore, lostAfter} {
		l := open(t, durable.Config{Store: store})
		store.swap = once("", hit)
		_, err := l.Offer(ctx, "A", 50)
		if hit == refused {
			if !errors.Is(err, durable.ErrStore) {
				t.Error(err)
			}
			_, err = l.Offer(ctx, "A", 50)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// A ctx that is done in mid-call ends it: unchanged while reading, unknown while writing, and then ctx's error is not what
// the caller sees.
func TestDoneMidCall(t *testing.T) {
	store := &faulty{}
	l := open(t, durable.Config{Store: store})
	held := acquire(t, l, "A", 1)
	running, cancel := context.WithCancel(ctx)
	store.swap = func(string) fault { cancel(); return blocked }
	if _, err := l.Succeed(running, "A", held.Token); !errors.Is(err, durable.ErrAmbiguous) || errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	store.swap = nil
	running, cancel = context.WithCancel(ctx)
	store.load = func(string) fault { cancel(); return blocked }
	if _, err := l.Inspect(running, "A"); !errors.Is(err, durable.ErrStore) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	store.load = nil
	running, cancel = context.WithCancel(ctx)
	store.swap = func(string) fault { cancel(); return blocked }
	if err := l.Compact(running, 1); !errors.Is(err, durable.ErrAmbiguous) || errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	store.swap = nil
	succeed(t, l, held)
}
