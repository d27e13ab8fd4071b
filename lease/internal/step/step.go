// SPDX-License-Identifier: Apache-2.0

// Package step is the state machine of a ledger: every rule of the contract of package lease, for one domain, in one place.
// It owns no lock, reads no clock and draws no token; an [Engine] brings those, keeps the states and guards them. Package
// lease makes the answers and errors of its contract from a [Result].
package step

// State is a ledger's state of one domain. The zero State is a domain never seen. An assignment copies a State only in
// part: original and copy share the backlog and the done offsets, and once one of the two has been stepped the other
// must not be used any more. Append and Decode make a whole copy.
type State struct {
	// While phase is leased, offset and token are the lease's. After a completion they stay, as the record of it
	// that L5 asks for and as the first terminal offset of the domain, until the next lease needs the room.
	offset     int64
	token      uint64
	acquiredAt int64 // Unix nanoseconds, 0 unless leased
	retries    int32
	phase      phase
	released   bool       // leased, without an owner
	backlog    *queue     // nil when idle without backlog
	done       *terminals // nil when empty
}

type phase uint8

const (
	blank     phase = iota // no lease, no completion on record
	leased                 // a lease on offset
	processed              // idle; offset was completed last, by success
	failed                 // idle; offset was completed last, by giving up
)

// Step applies op to s, in place, and writes the answer into r, which must be zero. The answer depends on s and op alone.
// With a refusal s is unchanged.
func (s *State) Step(op *Op, r *Result) {
	if op.Fresh == 0 && (op.Kind.Grants() || op.Kind == Reclaim) {
		r.Refused = Undefined
		return
	}
	switch op.Kind {
	case TryAcquire:
		s.tryAcquire(op, r)
	case Offer:
		s.offer(op, r)
	case AcquireNext:
		s.acquireNext(op, r)
	case Succeed:
		s.succeed(op, r)
	case Fail:
		s.fail(op, r)
	case Reclaim:
		if s.check(op, r) {
			s.token, s.released = op.Fresh, false
			r.Changed = true
			s.show(r)
		}
	case Release:
		// The lease stays as it is, without an owner (L12). The second time nothing changes: the first reply may have been lost.
		if s.check(op, r) {
			r.Changed, s.released = !s.released, true
			s.show(r)
		}
	case Compact:
		r.Changed = s.compact(op)
	default:
		r.Refused = Undefined
	}
}

func (s *State) tryAcquire(op *Op, r *Result) {
	if s.phase == leased {
		s.offer(op, r)
		return
	}
	if head, ok := s.backlog.first(); ok {
		if head != op.Offset {
			if s.answerKnown(op, r); r.Status != AlreadyProcessed && r.Status != AlreadyFailed {
				r.Status, r.Refused, r.Next = 0, OutOfOrder, head
			}
			return
		}
	} else if s.answerKnown(op, r) {
		return
	}
	s.grant(op, op.Offset, r)
}

func (s *State) offer(op *Op, r *Result) {
	if s.answerKnown(op, r) {
		return
	}
	if op.MaxBacklog > 0 && s.backlog.len() >= op.MaxBacklog {
		r.Refused = BacklogFull
		return
	}
	if s.backlog == nil {
		s.backlog = op.Spares.queue()
	}
	s.backlog.push(op.Offset)
	r.Status, r.Changed = Enqueued, true
}

// answerKnown answers for an offset that the domain has met: live first, because what is live stays so below the floor (L4).
func (s *State) answerKnown(op *Op, r *Result) bool {
	switch {
	case s.phase == leased && s.offset == op.Offset:
		r.Status = AlreadyAcquired
		s.show(r)
	case s.backlog.has(op.Offset):
		r.Status = Enqueued
	case op.Offset < op.Floor:
		r.Status, r.BelowFloor = AlreadyProcessed, true
	case s.phase == processed && s.offset == op.Offset:
		r.Status = AlreadyProcessed
	case s.phase == failed && s.offset == op.Offset:
		r.Status = AlreadyFailed
	case s.done != nil:
		r.Status = s.done.status(op.Offset)
	}
	return r.Status != 0
}

func (s *State) acquireNext(op *Op, r *Result) {
	if s.phase == leased {
		r.Status = Busy
	} else if head, ok := s.backlog.first(); ok {
		s.grant(op, head, r)
	} else {
		r.Status = NothingToDo
	}
}

// grant starts a lease on offset, which is the backlog's head unless the backlog is empty.
func (s *State) grant(op *Op, offset int64, r *Result) {
	s.archive(op)
	if s.backlog.len() > 0 {
		s.backlog.pop()
	}
	s.phase, s.offset, s.token = leased, offset, op.Fresh
	s.acquiredAt, s.retries = op.Now, 0
	r.Status, r.Changed = Acquired, true
	s.show(r)
}

// archive moves the offset that was completed last to the other done ones.
func (s *State) archive(op *Op) {
	if s.phase == blank || s.offset < op.Floor {
		return
	}
	if s.done == nil {
		s.done = op.Spares.terminals()
		s.done.compactAt = s.offset // as due said until now
	}
	s.done.add(s.offset, s.phase, op.Floor)
}

func (s *State) succeed(op *Op, r *Result) {
	if !s.check(op, r) {
		return
	}
	s.show(r)
	r.Status, r.Changed = NoBacklog, true
	if s.complete(op, processed, r) {
		r.Status = NextHint
	}
}

func (s *State) fail(op *Op, r *Result) {
	if !s.check(op, r) {
		return
	}
	r.Changed = true
	if int(s.retries) < op.MaxRetries {
		s.retries++
		s.show(r)
		r.Status = RetryScheduled
		return
	}
	s.show(r)
	r.Status = GiveUpNoBacklog
	if s.complete(op, failed, r) {
		r.Status = GiveUpNextHint
	}
}

// complete ends the lease and peeks at what waits; taking it is another call's business (L8).
func (s *State) complete(op *Op, end phase, r *Result) (waits bool) {
	s.phase, s.acquiredAt, s.retries = end, 0, 0
	if s.backlog == nil {
		return false
	}
	if r.Next, waits = s.backlog.first(); !waits {
		op.Spares.keepQueue(s.backlog)
		s.backlog = nil
	}
	return waits
}

// check is the fence (L5): it passes the token of the lease that is held, and no other. A released lease keeps its token to be
// reclaimed by, but nobody may complete it (L12).
func (s *State) check(op *Op, r *Result) bool {
	switch {
	case s.phase == leased:
		if s.token == op.Token && (!s.released || op.Kind == Reclaim || op.Kind == Release) {
			return true
		}
		r.Refused, r.Offset = NotTheHolder, s.offset
		return false
	case s.phase != blank && s.token == op.Token:
		r.Offset, r.Status = s.offset, AlreadyProcessed
		if s.phase == failed {
			r.Status = AlreadyFailed
		}
	}
	r.Refused = NoLease
	return false
}

// compact forgets the done offsets below the floor, and with them the record of the last completion if it is one.
func (s *State) compact(op *Op) (changed bool) {
	if s.phase != leased && s.phase != blank && s.offset < op.Floor {
		s.phase, s.offset, s.token = blank, 0, 0
		changed = true
	}
	if s.done != nil {
		had := s.done.len()
		s.done.trim(op.Floor)
		changed = changed || s.done.len() < had
		if s.done.len() == 0 {
			op.Spares.keepTerminals(s.done)
			s.done = nil
		}
	}
	return changed
}

// show writes the lease that is held into r.
func (s *State) show(r *Result) { r.Grant = s.lease() }

func (s *State) lease() Grant {
	return Grant{Offset: s.offset, Token: s.token, AcquiredAt: s.acquiredAt, RetryCount: s.retries, Released: s.released}
}

// Due is a floor at which compacting pays: at or below the highest done offset, so that an engine which compacts
// the state whenever the floor passes it misses no state that could be dropped.
func (s *State) Due() (floor int64, ok bool) {
	if s.done != nil {
		return s.done.quantile(4), true
	}
	return s.offset, s.phase == processed || s.phase == failed
}

// Scheduled notes that the state is to be compacted when the floor passes floor.
func (s *State) Scheduled(floor int64) {
	if s.done != nil {
		s.done.compactAt = floor
	}
}

// Overdue reports whether Due has fallen far below the floor of the last Scheduled.
func (s *State) Overdue() bool { return s.done != nil && s.done.overdue() }

// Vacant reports whether s holds nothing but what the floor says as well, so that it can be dropped.
func (s *State) Vacant() bool { return s.phase == blank && s.backlog.len() == 0 && s.done == nil }

// Index is the list that the domain is in.
func (s *State) Index() Index {
	switch {
	case s.phase == leased:
		return Held
	case s.backlog.len() > 0:
		return Ready
	}
	return Neither
}

// Item is the domain as an entry of the list that it is in. ok: it is in this one.
func (s *State) Item(domain string, index Index) (item Item, ok bool) {
	if index == Neither || s.Index() != index {
		return item, false
	}
	item.Domain = domain
	if index == Held {
		item.Grant = s.lease()
	} else {
		item.Offset, _ = s.backlog.first()
	}
	return item, true
}

// Leased returns the domain's lease, if there is one.
func (s *State) Leased() (Grant, bool) {
	if s.phase != leased {
		return Grant{}, false
	}
	return s.lease(), true
}

// Snapshot returns a copy of s. It allocates.
func (s *State) Snapshot(floor int64) Snapshot {
	v := Snapshot{Floor: floor, Backlog: s.backlog.appendTo(nil)}
	if s.done != nil {
		v.Processed, v.Failed = s.done.count(floor)
	}
	switch {
	case s.phase == leased:
		v.Grant = s.lease()
	case s.phase == processed && s.offset >= floor:
		v.Processed++
	case s.phase == failed && s.offset >= floor:
		v.Failed++
	}
	return v
}
