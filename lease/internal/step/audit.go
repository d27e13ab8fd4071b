// SPDX-License-Identifier: Apache-2.0

// What tests look at inside a State.

package step

import (
	"fmt"
	"slices"
)

// Audit checks for tests that what s holds agrees: L2, and its lists with their indexes.
func (s *State) Audit() error {
	backlog := s.backlog.appendTo(nil)
	seen := map[int64]bool{}
	for _, offset := range backlog {
		if seen[offset] {
			return fmt.Errorf("%d waits twice", offset)
		}
		seen[offset] = true
		if !s.backlog.has(offset) {
			return fmt.Errorf("%d waits but is not found", offset)
		}
	}
	if s.backlog != nil && s.backlog.index != nil {
		indexed := 0
		for _, at := range s.backlog.index {
			if at != 0 {
				indexed++
			}
		}
		if indexed != len(backlog) {
			return fmt.Errorf("%d wait, %d are indexed", len(backlog), indexed)
		}
	}
	if s.done != nil {
		sets := []offsets{s.done.processed}
		if s.done.failed != nil {
			sets = append(sets, *s.done.failed)
		}
		for _, set := range sets {
			if !slices.IsSorted(set) {
				return fmt.Errorf("done offsets out of order: %v", set)
			}
			for _, offset := range set {
				if offset > s.done.top {
					return fmt.Errorf("%d is above the top, %d", offset, s.done.top)
				}
				if seen[offset] {
					return fmt.Errorf("%d is in two places", offset)
				}
				seen[offset] = true
			}
		}
	}
	if s.phase != blank && seen[s.offset] {
		return fmt.Errorf("%d is current or completed last, and in another place too", s.offset)
	}
	return nil
}

// Done returns the offsets that are processed and those that are failed, each in any order. Some of those below the floor are among them.
func (s *State) Done() (done, given []int64) {
	if s.done != nil {
		done = append(done, s.done.processed...)
		if s.done.failed != nil {
			given = append(given, *s.done.failed...)
		}
	}
	switch s.phase {
	case processed:
		done = append(done, s.offset)
	case failed:
		given = append(given, s.offset)
	}
	return done, given
}
