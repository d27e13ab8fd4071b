// SPDX-License-Identifier: Apache-2.0

package leasepg

// This file is about calls that gather, without a database and in virtual time.

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// sender is a gatherer whose statements take a second, and end with their context.
type sender struct {
	gatherer[int]
	mu      sync.Mutex
	batches []int // sizes of the statements that were answered
	cut     int   // statements that ended with their context
	left    []int // what is answered with "alone"
}

func newSender() *sender {
	s := &sender{}
	s.send = func(ctx context.Context, batch []*call[int]) {
		late := time.NewTimer(time.Second)
		defer late.Stop()
		select {
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			s.cut++
			for _, c := range batch {
				c.err = ctx.Err()
			}
			return
		case <-late.C:
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.batches = append(s.batches, len(batch))
		for _, c := range batch {
			c.alone = slices.Contains(s.left, c.what)
		}
	}
	return s
}

// fill has as many calls under way as go alone, each for a millisecond.
func (s *sender) fill(group *sync.WaitGroup) {
	for range maxAlone {
		group.Go(func() {
			_, _ = s.do(context.Background(), &call[int]{}, func() error {
				time.Sleep(time.Millisecond)
				return nil
			})
		})
	}
	synctest.Wait()
}

// The first ones go alone, at once; the others share statements, of a bounded size, when one of those has ended.
func TestGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSender()
		s.left = []int{7}
		var group sync.WaitGroup
		s.fill(&group)
		var alone []int
		began := time.Now()
		for i := range maxGathered + 40 {
			group.Go(func() {
				sent, err := s.do(t.Context(), &call[int]{what: i}, func() error {
					s.mu.Lock()
					defer s.mu.Unlock()
					alone = append(alone, i)
					return nil
				})
				if !sent || err != nil {
					t.Errorf("%d: %v, %v", i, sent, err)
				}
			})
		}
		group.Wait()
		if took := time.Since(began); took != time.Second+time.Millisecond {
			t.Errorf("took %v", took)
		}
		if slices.Sort(s.batches); !slices.Equal(s.batches, []int{40, maxGathered}) {
			t.Errorf("statements of %v", s.batches)
		}
		if !slices.Equal(alone, []int{7}) {
			t.Errorf("sent alone afterwards: %v", alone)
		}
		synctest.Wait()
		if s.flying != 0 || len(s.waiting) != 0 {
			t.Errorf("%d under way, %d waiting, at the end", s.flying, len(s.waiting))
		}
	})
}

// Calls that go alone and never end keep nobody waiting for longer than patience.
func TestGatherOverBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSender()
		block := make(chan struct{})
		var blocked, group sync.WaitGroup
		for range maxAlone {
			blocked.Go(func() { _, _ = s.do(t.Context(), &call[int]{}, func() error { <-block; return nil }) })
		}
		synctest.Wait()
		began := time.Now()
		for range 10 {
			group.Go(func() { _, _ = s.do(t.Context(), &call[int]{}, func() error { return nil }) })
		}
		group.Wait()
		if took := time.Since(began); took != patience+time.Second {
			t.Errorf("took %v", took)
		}
		if !slices.Equal(s.batches, []int{10}) {
			t.Errorf("statements of %v", s.batches)
		}
		close(block)
		blocked.Wait()
		synctest.Wait()
		if s.flying != 0 {
			t.Errorf("%d under way at the end", s.flying)
		}
	})
}

// Who gives up before the statement begins has not been sent; who gives up after does not end it for the others; the last one
// does.
func TestGatherGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSender()
		var group sync.WaitGroup
		s.fill(&group)
		soon, cancelSoon := context.WithCancel(t.Context())
		later, cancelLater := context.WithCancel(t.Context())
		defer cancelLater()
		var unsent, unknown, done int
		for i := range 30 {
			ctx := []context.Context{soon, later, t.Context()}[i%3]
			group.Go(func() {
				sent, err := s.do(ctx, &call[int]{}, func() error { return nil })
				s.mu.Lock()
				defer s.mu.Unlock()
				switch {
				case !sent && errors.Is(err, context.Canceled):
					unsent++
				case errors.Is(err, context.Canceled):
					unknown++
				case err == nil:
					done++
				}
			})
		}
		synctest.Wait()
		cancelSoon()
		time.Sleep(100 * time.Millisecond)
		cancelLater()
		group.Wait()
		if unsent != 10 || unknown != 10 || done != 10 || s.cut != 0 || !slices.Equal(s.batches, []int{20}) {
			t.Errorf("%d not sent, %d unknown, %d done, %d cut off, statements of %v", unsent, unknown, done, s.cut, s.batches)
		}

		s.fill(&group)
		ctx, cancel := context.WithCancel(t.Context())
		group.Go(func() { _, _ = s.do(ctx, &call[int]{}, func() error { return nil }) })
		time.Sleep(100 * time.Millisecond)
		cancel()
		group.Wait()
		synctest.Wait()
		if s.cut != 1 || s.flying != 0 {
			t.Errorf("%d statements cut off, %d under way", s.cut, s.flying)
		}
	})
}
