// SPDX-License-Identifier: Apache-2.0

// The suite on the store in memory, which is then broken on purpose, one way at a time.

package lettertest

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stopbank/stopbank/lease/deadletter"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/internal/dlq"
	"github.com/stopbank/stopbank/lease/internal/testkit/witness"
)

// plain is a desk in memory. It has no network to break: engines run Broken.
func plain(change func(deadletter.Store, *log) deadletter.Store) Desk {
	source := &log{}
	var store deadletter.Store = &dlq.Memory{Append: source.append}
	if change != nil {
		store = change(store, source)
	}
	return Desk{
		Partition: "orders/3", Once: true, Source: func(testing.TB) []dispatch.Record { return source.all() },
		Open: func(testing.TB, Dial) deadletter.Store { return store },
	}
}

// log is a source.
type log struct {
	mu      sync.Mutex
	records []dispatch.Record
}

func (l *log) append(_ context.Context, _ string, r dispatch.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
	return nil
}

func (l *log) all() []dispatch.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.records)
}

// TestPropertyThePlainStorePasses: rapid's machine among others.
func TestPropertyThePlainStorePasses(t *testing.T) {
	for _, c := range checks() {
		if c.name != "Broken" {
			t.Run(c.name, func(t *testing.T) { c.run(t, plain(nil)) })
		}
	}
}

// These are stores of which one method is another one.
type (
	putting struct {
		deadletter.Store
		put func(context.Context, deadletter.Letter) error
	}
	replaying struct {
		deadletter.Store
		replay func(context.Context, deadletter.ID) error
	}
	discarding struct {
		deadletter.Store
		discard func(context.Context, deadletter.ID) error
	}
	parking struct {
		deadletter.Store
		park func(context.Context, deadletter.ID, string) error
	}
	listing struct {
		deadletter.Store
		list func(context.Context, deadletter.Filter) iter.Seq2[deadletter.Letter, error]
	}
)

func (s putting) Put(ctx context.Context, l deadletter.Letter) error     { return s.put(ctx, l) }
func (s replaying) Replay(ctx context.Context, id deadletter.ID) error   { return s.replay(ctx, id) }
func (s discarding) Discard(ctx context.Context, id deadletter.ID) error { return s.discard(ctx, id) }
func (s parking) Park(ctx context.Context, id deadletter.ID, n string) error {
	return s.park(ctx, id, n)
}
func (s listing) List(ctx context.Context, f deadletter.Filter) iter.Seq2[deadletter.Letter, error] {
	return s.list(ctx, f)
}

func TestTheSuiteHasTeeth(t *testing.T) {
	witness.Quiet(t)
	for name, fault := range map[string]struct {
		by     string // checks that have to notice, among others
		change func(deadletter.Store, *log) deadletter.Store
	}{
		"a second Put takes the first away": {"Values Machine", func(s deadletter.Store, _ *log) deadletter.Store {
			return putting{s, func(ctx context.Context, l deadletter.Letter) error {
				if _, err := s.Get(ctx, l.ID()); err == nil {
					return s.Discard(ctx, l.ID())
				}
				return s.Put(ctx, l)
			}}
		}},
		"a Put revives": {"AtOnce Machine", func(s deadletter.Store, _ *log) deadletter.Store {
			return putting{s, func(ctx context.Context, l deadletter.Letter) error {
				if _, err := s.Get(ctx, l.ID()); errors.Is(err, deadletter.ErrNotDead) {
					l.Record.Offset += 1000
				}
				return s.Put(ctx, l)
			}}
		}},
		"Replay appends twice": {"Machine AtOnce", func(s deadletter.Store, to *log) deadletter.Store {
			return replaying{s, func(ctx context.Context, id deadletter.ID) error {
				l, err := s.Get(ctx, id)
				if err == nil {
					err = to.append(ctx, "", dlq.Replay(l))
				}
				return errors.Join(err, s.Replay(ctx, id))
			}}
		}},
		"Replay loses headers": {"Machine", func(s deadletter.Store, to *log) deadletter.Store {
			return replaying{s, func(ctx context.Context, id deadletter.ID) error {
				l, err := s.Get(ctx, id)
				if err != nil {
					return s.Replay(ctx, id)
				}
				l.Record.Headers = nil
				return errors.Join(to.append(ctx, "", dlq.Replay(l)), s.Discard(ctx, id))
			}}
		}},
		"the order is that of texts": {"List", func(s deadletter.Store, _ *log) deadletter.Store {
			return listing{s, func(ctx context.Context, f deadletter.Filter) iter.Seq2[deadletter.Letter, error] {
				var all []deadletter.Letter
				for l := range s.List(ctx, f) {
					all = append(all, l)
				}
				slices.SortFunc(all, func(a, b deadletter.Letter) int { return strings.Compare(a.ID().String(), b.ID().String()) })
				return func(yield func(deadletter.Letter, error) bool) {
					for _, l := range all {
						if !yield(l, nil) {
							return
						}
					}
				}
			}}
		}},
		"what is gone was never there": {"Machine", func(s deadletter.Store, _ *log) deadletter.Store {
			return discarding{s, func(ctx context.Context, id deadletter.ID) error {
				err := s.Discard(ctx, id)
				var not *deadletter.NotDeadError
				if errors.As(err, &not) {
					not.Fate = deadletter.Unknown
				}
				return err
			}}
		}},
		"a note is lost": {"Machine", func(s deadletter.Store, _ *log) deadletter.Store {
			return parking{s, func(ctx context.Context, id deadletter.ID, _ string) error { return s.Park(ctx, id, "") }}
		}},
		"one more than the limit": {"List", func(s deadletter.Store, _ *log) deadletter.Store {
			return listing{s, func(ctx context.Context, f deadletter.Filter) iter.Seq2[deadletter.Letter, error] {
				f.Limit += min(f.Limit, 1)
				return s.List(ctx, f)
			}}
		}},
	} {
		for _, c := range checks() {
			if slices.Contains(strings.Fields(fault.by), c.name) &&
				witness.Watch(t, func(t testing.TB) { c.run(t, plain(fault.change)) }) == "" {
				t.Errorf("%s: %s does not notice", name, c.name)
			}
		}
	}
}
