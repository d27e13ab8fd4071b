// SPDX-License-Identifier: Apache-2.0

package leasekafka

// A partition's ledger in memory collects the state that commits pass to the next owner.

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/step"
)

// ledger is the engine of a lease.Ledger of one owner of a partition. It starts from the state that the previous owner committed:
// done offsets stay done, failed attempts count, running records have a lease. Inspect does not count earlier owners' results.
// Fail and GiveUp wait until the failure is committed; if ctx ends first, they return durable.ErrAmbiguous, and the failure
// still counts here.
type ledger struct {
	lost func() error // returns the cause of losing the partition; nil while it is held

	mu     sync.Mutex // guards the rest; no other lock is taken under it
	states map[string]*step.State
	floor  int64
	token  uint64 // the last one given out

	// The results of earlier owners.
	restored memo              // tried and running are used up by newLedger
	unread   map[int64]attempt // failures of records that have not been read yet

	// The state that is committed as metadata.
	epoch     uint64
	done      spans
	gaveUp    map[int64]bool
	open      map[int64]attempt // begun and not done
	changes   uint64            // counts changes of the state
	saved     uint64            // the number of changes that are committed
	progress  chan struct{}     // closed after each commit, failed or not, and when the partition is lost
	commitNow chan struct{}     // asks for a commit at once; buffers one request
}

var _ step.Engine = (*ledger)(nil)

// epochBits is the shift of the epoch in a token: one owner's tokens are below the next owner's.
const epochBits = 29

// newLedger returns a ledger restored from a committed floor and m. The epoch is the time in seconds, or the previous epoch
// plus one, so tokens grow even if the group's metadata is lost.
func newLedger(floor int64, m memo, lost func() error) *ledger {
	l := &ledger{
		lost: lost, states: map[string]*step.State{}, floor: floor, restored: m, done: slices.Clone(m.done),
		gaveUp: map[int64]bool{}, open: map[int64]attempt{}, unread: map[int64]attempt{}, changes: 1,
		progress: make(chan struct{}), commitNow: make(chan struct{}, 1),
	}
	l.epoch = max(m.epoch+1, uint64(time.Now().Unix()))
	l.token = l.epoch << epochBits
	for _, o := range m.gaveUp {
		l.gaveUp[o] = true
	}
	for _, a := range m.tried {
		l.unread[a.offset] = a
	}
	for _, a := range m.running {
		delete(l.unread, a.offset)
		l.restoreLeaseLocked(a)
	}
	return l
}

// restoreLeaseLocked restores the lease of a.
func (l *ledger) restoreLeaseLocked(a attempt) {
	l.token++
	format, leased := byte(1), byte(1) // as step.State.Append writes them
	if !a.running {
		format = 2
	}
	b := binary.AppendVarint([]byte{format, leased}, a.offset)
	b = binary.AppendUvarint(b, l.token)
	b = binary.AppendVarint(b, a.at*int64(time.Millisecond))
	b = binary.AppendUvarint(b, uint64(a.retries))
	s := &step.State{}
	if s.Decode(b) == nil { // always
		l.states[a.domain], l.open[a.offset] = s, a
	}
}

// Do implements step.Engine and records the result for the next commit, for which a Fail waits.
func (l *ledger) Do(ctx context.Context, op step.Op) (r step.Result, err error) {
	if lost := l.lost(); lost != nil {
		if op.Token == 0 {
			return r, lost
		}
		return r, &lease.TokenMismatchError{Domain: op.Domain, Got: lease.Token(op.Token)}
	}
	l.mu.Lock()
	l.stepLocked(&op, &r)
	l.mu.Unlock()
	if op.Kind == step.Fail && r.Refused == 0 {
		err = l.awaitCommit(ctx, op.Domain, lease.Token(op.Token))
	}
	return r, err
}

func (l *ledger) stepLocked(op *step.Op, r *step.Result) {
	s := l.states[op.Domain]
	if op.Kind == step.Offer || op.Kind == step.TryAcquire {
		if l.applyEarlierLocked(op, s, r) {
			return
		}
		s = l.states[op.Domain]
	}
	if s == nil {
		s = &step.State{} // kept only if op changes it
	}
	op.Floor, op.Fresh, op.Now = l.floor, l.token+1, time.Now().UnixNano()
	s.Step(op, r)
	if r.Changed {
		l.states[op.Domain] = s
		l.noteLocked(op, r)
	}
}

// applyEarlierLocked applies an earlier owner's result for an offset, and reports whether op is answered. A failed attempt
// continues in the domain of its record, once that is read.
func (l *ledger) applyEarlierLocked(op *step.Op, s *step.State, r *step.Result) bool {
	if s != nil {
		if held, ok := s.Leased(); ok && held.Offset == op.Offset {
			return false // this owner's state is newer
		}
	}
	switch a, tried := l.unread[op.Offset]; {
	case op.Offset < l.floor:
	case tried:
		delete(l.unread, op.Offset)
		if s == nil {
			a.domain = op.Domain
			l.restoreLeaseLocked(a)
		}
	case l.restored.done.has(op.Offset):
		r.Status = step.AlreadyProcessed
	case l.restored.hasGivenUp(op.Offset):
		r.Status = step.AlreadyFailed
	}
	return r.Status != 0
}

// noteLocked notes a changed record for the next commit.
func (l *ledger) noteLocked(op *step.Op, r *step.Result) {
	if r.Token == op.Fresh {
		l.token = op.Fresh
	}
	a := attempt{offset: r.Offset, at: max(0, r.AcquiredAt/int64(time.Millisecond)), retries: r.RetryCount, domain: op.Domain,
		running: !r.Released}
	switch {
	case op.Kind == step.Succeed:
		delete(l.open, r.Offset)
		l.done = l.done.add(r.Offset, r.Offset)
	case op.Kind == step.Fail && r.Status != step.RetryScheduled:
		delete(l.open, r.Offset)
		l.gaveUp[r.Offset] = true
	case r.Token != 0:
		l.open[r.Offset] = a
	default: // a waiting record, which the next owner reads from the log
		return
	}
	l.changes++
}

// gap records that the log has no records from first to last.
func (l *ledger) gap(first, last int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first = max(first, l.floor); first <= last {
		l.done = l.done.add(first, last)
	}
}

// text returns the metadata of a commit at floor, and the number of changes in it.
func (l *ledger) text(floor int64) (text string, changes uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.memoLocked(floor)
	return m.text(floor), l.changes
}

// memoLocked returns the state to commit.
func (l *ledger) memoLocked(floor int64) memo {
	m := memo{topic: l.restored.topic, epoch: l.epoch, done: slices.Clone(l.done).from(floor)}
	for o := range l.gaveUp {
		if o >= floor {
			m.gaveUp = append(m.gaveUp, o)
		}
	}
	slices.Sort(m.gaveUp)
	for _, attempts := range []map[int64]attempt{l.open, l.unread} {
		for o, a := range attempts {
			if o < floor {
				continue
			}
			if a.retries > 0 {
				m.tried = append(m.tried, a)
			}
			if a.running && len(a.domain) <= mostDomain {
				m.running = append(m.running, a)
			}
		}
	}
	byOffset := func(a, b attempt) int { return cmp.Compare(a.offset, b.offset) }
	slices.SortFunc(m.tried, byOffset)
	slices.SortFunc(m.running, byOffset)
	return m
}

// full reports whether the state above floor takes three quarters of a commit's metadata, without running records, which can be
// left out. top is the offset after the last one that is done.
func (l *ledger) full(floor int64) (top int64, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.memoLocked(floor)
	m.running = nil
	if n := len(l.done); n > 0 {
		top = l.done[n-1].last + 1
	}
	return top, len(m.text(floor)) >= fullText
}

// overdue reports whether there are uncommitted changes and no commit has happened since the last call. It updates the caller's
// saved.
func (l *ledger) overdue(saved *uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := *saved
	*saved = l.saved
	return l.saved < l.changes && l.saved == before
}

// markSaved records how many changes are committed, and wakes the calls that wait for a commit, also after a failed one.
func (l *ledger) markSaved(changes uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.saved = max(l.saved, changes)
	close(l.progress)
	l.progress = make(chan struct{})
}

// awaitCommit waits until all changes so far are committed.
func (l *ledger) awaitCommit(ctx context.Context, domain string, token lease.Token) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for now := l.changes; l.saved < now; {
		progress := l.progress
		l.mu.Unlock()
		lost := l.lost()
		if lost == nil {
			select {
			case l.commitNow <- struct{}{}:
			default:
			}
			select {
			case <-progress:
			case <-ctx.Done():
			}
		}
		l.mu.Lock()
		switch {
		case lost != nil:
			return &lease.TokenMismatchError{Domain: domain, Got: token}
		case ctx.Err() != nil:
			return fmt.Errorf("%w: domain %q: the failure counts, and is not committed: %s", durable.ErrAmbiguous, domain,
				ctx.Err().Error())
		}
	}
	return nil
}

// Compact visits every domain with state above the floor.
func (l *ledger) Compact(_ context.Context, floor int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if floor < l.floor {
		return &step.FloorError{Floor: l.floor, Got: floor}
	}
	l.compactLocked(floor)
	return nil
}

func (l *ledger) compactLocked(floor int64) {
	l.floor, l.done, l.restored.done = floor, l.done.from(floor), l.restored.done.from(floor)
	maps.DeleteFunc(l.gaveUp, func(o int64, _ bool) bool { return o < floor })
	maps.DeleteFunc(l.unread, func(o int64, _ attempt) bool { return o < floor }) // the log has deleted it
	for domain, s := range l.states {
		s.Step(&step.Op{Kind: step.Compact, Floor: floor}, &step.Result{})
		if s.Index() != step.Neither {
			continue
		}
		if v := s.Snapshot(floor); v.Processed+v.Failed == 0 {
			delete(l.states, domain)
		}
	}
}

func (l *ledger) Inspect(_ context.Context, domain string) (step.Snapshot, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.states[domain]
	if s == nil {
		s = &step.State{}
	}
	return s.Snapshot(l.floor), nil
}

// List yields a snapshot. No lock is held while it yields.
func (l *ledger) List(ctx context.Context, index step.Index) iter.Seq2[step.Item, error] {
	return func(yield func(step.Item, error) bool) {
		var items []step.Item
		l.mu.Lock()
		for domain, s := range l.states {
			if item, ok := s.Item(domain, index); ok {
				items = append(items, item)
			}
		}
		l.mu.Unlock()
		for _, item := range items {
			if err := ctx.Err(); err != nil {
				yield(step.Item{}, err)
				return
			}
			if !yield(item, nil) {
				return
			}
		}
	}
}
