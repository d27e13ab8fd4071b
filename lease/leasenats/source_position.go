// SPDX-License-Identifier: Apache-2.0

package leasenats

// The position of a source is one key, written by compare-and-swap, so that of two owners only the later one can commit.

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/stopbank/stopbank/lease/dispatch"
)

// position is the key as this source last read or wrote it.
type position struct {
	owner string // random, to distinguish this source's writes from another's

	mu       sync.Mutex // guards the rest; held during a write, because each names the revision of the one before
	revision uint64     // 0: not claimed
	floor    int64
}

// Committed implements dispatch.Source: it returns the last committed floor, or the stream's first sequence. It claims the
// partition by writing the key: the owner that claimed it before gets dispatch.ErrLost from its next Commit. Of two owners the
// one that called Committed later wins. A position beyond the end of the stream is an error.
func (s *source) Committed(ctx context.Context) (int64, error) {
	p := &s.position
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	stream, err := s.js.Stream(ctx, s.cfg.Stream)
	if err != nil {
		return 0, s.failed(err)
	}
	state := stream.CachedInfo().State
	for {
		floor, revision, _, err := s.read(ctx)
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			floor, revision = int64(max(1, state.FirstSeq)), 0
		case err != nil:
			return 0, err
		case floor > int64(state.LastSeq)+1: // new messages may have been committed since the stream's state was read
			if again, err := s.js.Stream(ctx, s.cfg.Stream); err != nil {
				return 0, s.failed(err)
			} else if state = again.CachedInfo().State; floor > int64(state.LastSeq)+1 {
				return 0, s.failed(fmt.Errorf("the position is %d, and the stream ends at %d: "+
					"it was made anew or put back, and what it has now would be taken for done", floor, state.LastSeq))
			}
		}
		err = s.writeLocked(ctx, floor, revision)
		if err == nil {
			return floor, nil
		}
		if !conflict(err) {
			return 0, s.failed(err)
		}
	}
}

// Commit implements dispatch.Source. A lower floor than the last is ignored; the same floor is written again, which shows whether
// this source still owns the partition. Error: dispatch.ErrLost, or a temporary one.
func (s *source) Commit(ctx context.Context, floor int64) error {
	p := &s.position
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.revision == 0 {
		return s.failed(errors.New("not claimed: Committed comes first"))
	}
	if floor < p.floor {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	for {
		err := s.writeLocked(ctx, floor, p.revision)
		if err == nil {
			return nil
		}
		if !conflict(err) {
			return s.failed(err)
		}
		// Either another owner has claimed the partition, or the reply to an earlier write of this source was lost.
		_, revision, owner, err := s.read(ctx)
		if err != nil {
			return err
		}
		if owner != p.owner {
			return dispatch.Lost(s.cfg.Partition,
				fmt.Errorf("leasenats: stream %s: floor %d not committed, another owner has claimed the partition", s.cfg.Stream, floor))
		}
		p.revision = revision
	}
}

func (s *source) read(ctx context.Context) (floor int64, revision uint64, owner string, err error) {
	entry, err := s.kv.Get(ctx, s.key)
	if err != nil {
		return 0, 0, "", s.failed(err)
	}
	if _, err := fmt.Sscanf(string(entry.Value()), "%d %s", &floor, &owner); err != nil {
		return 0, 0, "", s.failed(fmt.Errorf("key %s of bucket %s is no position: %q", s.key, s.cfg.Bucket, entry.Value()))
	}
	return floor, entry.Revision(), owner, nil
}

// writeLocked writes floor if the key still has that revision.
func (s *source) writeLocked(ctx context.Context, floor int64, revision uint64) error {
	value := fmt.Appendf(nil, "%d %s", floor, s.position.owner)
	var err error
	if revision == 0 {
		revision, err = s.kv.Create(ctx, s.key, value)
	} else {
		revision, err = s.kv.Update(ctx, s.key, value, revision)
	}
	if err == nil {
		s.position.revision, s.position.floor = revision, floor
	}
	return err
}

// conflict reports whether a write failed because the key has another revision.
func conflict(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, jetstream.ErrKeyExists) || errors.As(err, &api) &&
		(api.ErrorCode == codeConflict || api.ErrorCode == codeConflictInFlight)
}
