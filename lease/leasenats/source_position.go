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
	created  int64 // the stream's, in Unix nanoseconds
}

// stored is what a key holds, in words. Those that were written before positions were of a stream end with the owner.
type stored struct {
	floor   int64
	owner   string
	created int64  // of the stream; 0: not known
	below   record // below the floor
}

func (v stored) text() []byte {
	return fmt.Appendf(nil, "%d %s %d %d %d", v.floor, v.owner, v.created, v.below.sequence, v.below.at)
}

// readStored reads what text wrote.
func readStored(text string) (v stored, ok bool) {
	n, err := fmt.Sscan(text, &v.floor, &v.owner, &v.created, &v.below.sequence, &v.below.at)
	return v, n == 5 && err == nil || n == 2
}

// Committed implements dispatch.Source: it returns the last committed floor, or the stream's first sequence. It claims the
// partition by writing the key: the owner that claimed it before gets dispatch.ErrLost from its next Commit. Of two owners the
// one that called Committed later wins. A position of another stream, or beyond its end, is a dispatch.ErrRewound.
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
		v, revision, err := s.read(ctx)
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			v.floor, revision = int64(max(1, state.FirstSeq)), 0
		case err != nil:
			return 0, err
		case v.floor > int64(state.LastSeq)+1: // new messages may have been committed since the stream's state was read
			if stream, err = s.js.Stream(ctx, s.cfg.Stream); err != nil {
				return 0, s.failed(err)
			} else if state = stream.CachedInfo().State; v.floor > int64(state.LastSeq)+1 {
				return 0, s.rewound("the position is %d, and the stream ends at %d: it was made anew or put back, and what it has now "+
					"would be taken for done. Give the group a new Bucket", v.floor, state.LastSeq)
			}
		}
		err = s.sameStream(stream, v.created)
		if err == nil {
			err = s.sameRecord(ctx, v.below)
		}
		if err != nil {
			return 0, err
		}
		p.created = stream.CachedInfo().Created.UnixNano()
		s.trail.begin(v.below)
		err = s.writeLocked(ctx, v.floor, revision)
		if err == nil {
			return v.floor, nil
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
		v, revision, err := s.read(ctx)
		if err != nil {
			return err
		}
		if v.owner != p.owner {
			return s.claimed(floor)
		}
		p.revision = revision
	}
}

func (s *source) claimed(floor int64) error {
	return dispatch.Lost(s.cfg.Partition,
		fmt.Errorf("leasenats: stream %s: floor %d not committed, another owner has claimed the partition", s.cfg.Stream, floor))
}

func (s *source) read(ctx context.Context) (v stored, revision uint64, err error) {
	entry, err := s.kv.Get(ctx, s.key)
	if err != nil {
		return v, 0, s.failed(err)
	}
	v, ok := readStored(string(entry.Value()))
	if !ok {
		return v, 0, s.failed(fmt.Errorf("key %s of bucket %s is no position: %q", s.key, s.cfg.Bucket, entry.Value()))
	}
	return v, entry.Revision(), nil
}

// known returns where the partition ended as far as this source knows.
func (s *source) known() int64 {
	s.position.mu.Lock()
	floor := s.position.floor
	s.position.mu.Unlock()
	s.trail.mu.Lock()
	defer s.trail.mu.Unlock()
	return max(1, floor, s.trail.newest.sequence+1)
}

// writeLocked writes floor if the key still has that revision.
func (s *source) writeLocked(ctx context.Context, floor int64, revision uint64) error {
	text := stored{floor, s.position.owner, s.position.created, s.trail.under(floor)}.text()
	var err error
	if revision == 0 {
		revision, err = s.kv.Create(ctx, s.key, text)
	} else {
		revision, err = s.kv.Update(ctx, s.key, text, revision)
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
