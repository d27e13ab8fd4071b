// SPDX-License-Identifier: Apache-2.0

// The backlog: an offset has one place, keeps its order and is handed to nobody (L2, L3, L8).

package lease_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stopbank/stopbank/lease"
)

// L2 by looking into every place after every step.
func TestPropertyOnePlace(t *testing.T) {
	play(t, func(h *history) func(step) error {
		return func(s step) error {
			processed, failed := h.ledger.Done(s.call.Domain)
			all := slices.Concat(s.after.Backlog, processed, failed)
			if s.after.Lease != nil {
				all = append(all, s.after.Lease.Offset)
			}
			slices.Sort(all)
			if len(slices.Compact(slices.Clone(all))) < len(all) {
				return fmt.Errorf("L2: an offset has two places: %+v, lease %+v, processed %v, failed %v", s.after,
					s.after.Lease, processed, failed)
			}
			return nil
		}
	})
}

// L3 by the backlog before and after: an acquire takes the head, an arrival may add itself at the end, and nothing else
// happens to it.
func TestPropertyFirstComeFirstServed(t *testing.T) {
	play(t, func(*history) func(step) error {
		return func(s step) error {
			want := s.before.Backlog
			if s.granted() && len(want) > 0 {
				if got := s.reply.Acquisition.Lease.Offset; got != want[0] {
					return fmt.Errorf("%d was leased, first was %d", got, want[0])
				}
				want = want[1:]
			}
			arrives := s.reply.Acquisition.Status == lease.Enqueued || s.reply.Status == lease.Enqueued
			if arrives && len(s.after.Backlog) > len(want) {
				want = append(slices.Clip(want), s.call.Offset)
			}
			if !slices.Equal(s.after.Backlog, want) {
				return fmt.Errorf("the backlog went from %v to %v", s.before.Backlog, s.after.Backlog)
			}
			return nil
		}
	})
}

// L8 by what Succeed and Fail leave: the backlog that was there, nobody else's lease, and a hint at the head.
func TestPropertyNothingIsHandedOff(t *testing.T) {
	play(t, func(*history) func(step) error {
		return func(s step) error {
			done, failed := s.reply.Completion, s.reply.Failure
			if done.Status == 0 && failed.Status == 0 {
				return nil
			}
			if !slices.Equal(s.after.Backlog, s.before.Backlog) {
				return fmt.Errorf("the backlog went from %v to %v", s.before.Backlog, s.after.Backlog)
			}
			if held := s.after.Lease; held != nil && (s.ended() || s.before.Lease == nil || held.Token != s.before.Lease.Token) {
				return fmt.Errorf("handed on: %+v", held)
			}
			if !s.ended() {
				return nil
			}
			hinted, next := done.Status == lease.NextHint || failed.Status == lease.GiveUpNextHint, done.Next+failed.Next
			if hinted != (len(s.before.Backlog) > 0) || hinted && next != s.before.Backlog[0] {
				return fmt.Errorf("L8: hint %d (%t), waiting %v", next, hinted, s.before.Backlog)
			}
			return nil
		}
	})
}
