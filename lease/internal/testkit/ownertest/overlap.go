// SPDX-License-Identifier: Apache-2.0

// Two owners of one partition that overlap, each at a point where it does not know of the other.

package ownertest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
)

// Shared is a partition that two owners have opened: the same log and the same durable ledger.
type Shared struct {
	First, Second dispatch.Partition
	// Append writes a record to the log.
	Append func(domain string, payload []byte)
}

// Overlap checks a Source that rejects the commits of the owner whose Committed was called first (D8): a former owner that
// stood still ends and takes nothing from the later one, and an owner whose leases somebody else reclaimed goes on. Open
// opens another partition, without records, each time; its ledgers must allow a hundred retries.
func Overlap(t *testing.T, open func(t testing.TB) Shared) {
	t.Helper()
	for name, lists := range map[string]bool{"StoodStillWhileTaking": true, "StoodStillBeforeReading": false} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			first := &still{Ledger: s.First.Ledger, Source: s.First.Source, lists: lists, here: make(chan struct{}),
				on: make(chan struct{})}
			a := follow(t, only{Source: first, Ledger: first}, nil, nil)
			<-first.here
			b, release := s.atWork(t, s.Second)
			close(first.on)
			a.until("the former owner hears that it has lost the partition", func() bool {
				return errors.Is(a.drained, dispatch.ErrLost)
			})
			close(release)
			b.finishes(0)
			if times, _ := a.count(""); times > 0 {
				t.Errorf("D8: the former owner has handled %d records", times)
			}
		})
	}
	t.Run("SomebodyElseReclaims", func(t *testing.T) {
		s := open(t)
		a, release := s.atWork(t, s.First)
		for l, err := range s.Second.Ledger.Held(t.Context()) {
			if err == nil {
				l, err = s.Second.Ledger.Reclaim(t.Context(), l.Domain, l.Token)
			}
			if err == nil && l.Offset%2 == 0 { // every second one dies with it
				err = s.Second.Ledger.Release(t.Context(), l.Domain, l.Token)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		close(release)
		a.finishes(overlapKeys)
	})
}

const (
	overlapKeys    = 4
	overlapRecords = 10 * overlapKeys
)

// atWork writes the records, and lets p's owner begin one of each key. Handlers wait for release.
func (s Shared) atWork(t *testing.T, p dispatch.Partition) (x *told, release chan struct{}) {
	t.Helper()
	working, release := make(chan struct{}, overlapRecords), make(chan struct{})
	x = follow(t, only(p), func(dispatch.Job) {
		working <- struct{}{}
		<-release
	}, nil)
	for i := range overlapRecords {
		s.Append(fmt.Sprint("k", i%overlapKeys), nil)
	}
	for range overlapKeys {
		within(t, "the owner begins", working)
	}
	return x, release
}

// finishes: x does all records, and is fenced out of that many keys before.
func (x *told) finishes(fenced int) {
	x.t.Helper()
	x.until("all records are done", func() bool { return len(x.over) == overlapRecords })
	x.cancel()
	if err := x.ends(); err != nil {
		x.t.Errorf("the drain: %v", err)
	}
	if n := x.events[string(dispatch.Fenced)]; n != fenced {
		x.t.Errorf("D8: fenced out of %d keys, want %d", n, fenced)
	}
}

// still is an owner's ledger and source: it stands still where the leases are listed, or where the first record is read.
type still struct {
	lease.Ledger
	dispatch.Source
	lists    bool
	once     sync.Once
	here, on chan struct{}
}

func (s *still) stand() {
	s.once.Do(func() {
		close(s.here)
		<-s.on
	})
}

func (s *still) Held(ctx context.Context) iter.Seq2[lease.Lease, error] {
	if s.lists {
		s.stand()
	}
	return s.Ledger.Held(ctx)
}

func (s *still) Fetch(ctx context.Context, from int64, limit int) ([]dispatch.Record, error) {
	if !s.lists {
		s.stand()
	}
	return s.Source.Fetch(ctx, from, limit)
}
