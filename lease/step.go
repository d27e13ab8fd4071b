package lease

// This file is the state machine: every rule of the contract, for one domain, in one place. It owns no lock, reads no
// clock and draws no token; an engine brings those, keeps the states and guards them.

// State is a ledger's state of one domain. The zero State is a domain never seen. An assignment copies a State only in
// part: original and copy share the backlog and the done offsets, and once one of the two has been stepped the other
// must not be used any more. AppendBinary and UnmarshalBinary make a whole copy.
type State struct {
	// While phase is leased, offset and token are the lease's. After a completion they stay, as the record of it
	// that L5 asks for and as the first terminal offset of the domain, until the next lease needs the room.
	offset     int64
	token      Token
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

// Step applies op to s, in place, and writes the outcome into r, which must be zero. The outcome depends on s and op
// alone. With an error, s and r are unchanged. Errors beyond Ledger's: *InvalidError for an undefined Kind, and for a
// Kind that needs a Fresh token if Fresh is 0, which is no token (L9), whether or not a lease is granted.
func (s *State) Step(op *Op, r *Result) error {
	if op.Fresh == 0 && (op.Kind.grants() || op.Kind == OpReclaim) {
		return &InvalidError{Field: "Op.Fresh", Value: op.Fresh, Allowed: "1 or more"}
	}
	switch op.Kind {
	case OpTryAcquire:
		return s.tryAcquire(op, r)
	case OpOffer:
		return s.offer(op, r)
	case OpAcquireNext:
		s.acquireNext(op, r)
		return nil
	case OpSucceed:
		return s.succeed(op, r)
	case OpFail:
		return s.fail(op, r)
	case OpReclaim:
		return s.reclaim(op, r)
	case OpRelease:
		return s.release(op, r)
	case OpCompact:
		r.Changed = s.compact(op)
		return nil
	}
	return &InvalidError{Field: "Op.Kind", Value: op.Kind, Allowed: "a kind from OpTryAcquire to OpCompact"}
}

func (s *State) tryAcquire(op *Op, r *Result) error {
	if s.phase == leased {
		return s.offer(op, r)
	}
	if head, ok := s.backlog.first(); ok {
		if head != op.Offset {
			if s.answerKnown(op, r); r.Acquire == AlreadyProcessed || r.Acquire == AlreadyFailed {
				return nil
			}
			r.Acquire = 0
			return &BacklogOrderingError{Domain: op.Domain, Expected: head, Got: op.Offset}
		}
	} else if s.answerKnown(op, r) {
		return nil
	}
	s.grant(op, op.Offset, r)
	return nil
}

func (s *State) offer(op *Op, r *Result) error {
	if s.answerKnown(op, r) {
		return nil
	}
	if op.MaxBacklog > 0 && s.backlog.len() >= op.MaxBacklog {
		return &BacklogFullError{Domain: op.Domain, Offset: op.Offset, MaxBacklog: op.MaxBacklog}
	}
	if s.backlog == nil {
		s.backlog = op.spares.queue()
	}
	s.backlog.push(op.Offset)
	r.Acquire, r.Changed = Enqueued, true
	return nil
}

// answerKnown answers for an offset that the domain has met: live first, because what is live stays so below the floor (L4).
func (s *State) answerKnown(op *Op, r *Result) bool {
	switch {
	case s.phase == leased && s.offset == op.Offset:
		r.Acquire = AlreadyAcquired
		s.show(r)
	case s.backlog.has(op.Offset):
		r.Acquire = Enqueued
	case op.Offset < op.Floor:
		r.Acquire, r.BelowFloor = AlreadyProcessed, true
	case s.phase == processed && s.offset == op.Offset:
		r.Acquire = AlreadyProcessed
	case s.phase == failed && s.offset == op.Offset:
		r.Acquire = AlreadyFailed
	case s.done != nil:
		r.Acquire = s.done.status(op.Offset)
	}
	return r.Acquire != 0
}

func (s *State) acquireNext(op *Op, r *Result) {
	if s.phase == leased {
		r.Acquire = Busy
	} else if head, ok := s.backlog.first(); ok {
		s.grant(op, head, r)
	} else {
		r.Acquire = NothingToDo
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
	r.Acquire, r.Changed = Acquired, true
	s.show(r)
}

// archive moves the offset that was completed last to the other done ones.
func (s *State) archive(op *Op) {
	if s.phase == blank || s.offset < op.Floor {
		return
	}
	if s.done == nil {
		s.done = op.spares.terminals()
		s.done.compactAt = s.offset // as due said until now
	}
	s.done.add(s.offset, s.phase, op.Floor)
}

func (s *State) succeed(op *Op, r *Result) error {
	if err := s.check(op); err != nil {
		return err
	}
	s.show(r)
	r.Complete, r.Changed = NoBacklog, true
	if s.complete(op, processed, r) {
		r.Complete = NextHint
	}
	return nil
}

func (s *State) fail(op *Op, r *Result) error {
	if err := s.check(op); err != nil {
		return err
	}
	r.Changed = true
	if int(s.retries) < op.MaxRetries {
		s.retries++
		s.show(r)
		r.Fail = RetryScheduled
		return nil
	}
	s.show(r)
	r.Fail = GiveUpNoBacklog
	if s.complete(op, failed, r) {
		r.Fail = GiveUpNextHint
	}
	return nil
}

// complete ends the lease and peeks at what waits; taking it is another call's business (L8).
func (s *State) complete(op *Op, how phase, r *Result) (waits bool) {
	s.phase, s.acquiredAt, s.retries = how, 0, 0
	if s.backlog == nil {
		return false
	}
	if r.Next, waits = s.backlog.first(); !waits {
		op.spares.keepQueue(s.backlog)
		s.backlog = nil
	}
	return waits
}

func (s *State) reclaim(op *Op, r *Result) error {
	if err := s.check(op); err != nil {
		return err
	}
	s.token, s.released = op.Fresh, false
	r.Changed = true
	s.show(r)
	return nil
}

// release leaves the lease as it is, without an owner (L12). The second time it changes nothing: the first reply may have been lost.
func (s *State) release(op *Op, r *Result) error {
	if err := s.check(op); err != nil {
		return err
	}
	r.Changed, s.released = !s.released, true
	s.show(r)
	return nil
}

// check is the fence (L5): it passes the token of the lease that is held, and no other. A released lease keeps its token to be
// reclaimed by, but nobody may complete it (L12).
func (s *State) check(op *Op) error {
	if s.phase == leased {
		if s.token == op.Token && (!s.released || op.Kind == OpReclaim || op.Kind == OpRelease) {
			return nil
		}
		return &TokenMismatchError{Domain: op.Domain, Offset: s.offset, Got: op.Token}
	}
	err := &LeaseNotFoundError{Domain: op.Domain, Got: op.Token}
	if s.phase != blank && s.token == op.Token {
		err.Offset, err.Outcome = s.offset, OutcomeProcessed
		if s.phase == failed {
			err.Outcome = OutcomeFailed
		}
	}
	return err
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
			op.spares.keepTerminals(s.done)
			s.done = nil
		}
	}
	return changed
}

// show writes the lease that is held into r.
func (s *State) show(r *Result) {
	r.Offset, r.Token, r.AcquiredAt, r.RetryCount, r.Released = s.offset, s.token, s.acquiredAt, s.retries, s.released
}

// due is a floor at which compacting pays: at or below the highest done offset, so that an engine which compacts
// the state whenever the floor passes due misses no state that could be dropped.
func (s *State) due() (offset int64, ok bool) {
	if s.done != nil {
		return s.done.quantile(4), true
	}
	return s.offset, s.phase == processed || s.phase == failed
}

// vacant: nothing is left that the floor does not know.
func (s *State) vacant() bool { return s.phase == blank && s.backlog.len() == 0 && s.done == nil }

// Leased returns the domain's lease, if there is one.
func (s *State) Leased(domain string) (Lease, bool) {
	if s.phase != leased {
		return Lease{}, false
	}
	var r Result
	s.show(&r)
	return r.Lease(domain), true
}

// Waiting returns the backlog's head if the domain is idle and has a backlog.
func (s *State) Waiting() (offset int64, ok bool) {
	if s.phase == leased {
		return 0, false
	}
	return s.backlog.first()
}

// View returns a copy of s in the form of Inspect. It allocates.
func (s *State) View(domain string, floor int64) View {
	v := View{Domain: domain, Floor: floor, Backlog: s.backlog.appendTo(nil)}
	if s.done != nil {
		v.Processed, v.Failed = s.done.count(floor)
	}
	switch {
	case s.phase == leased:
		lease, _ := s.Leased(domain)
		v.Lease = &lease
	case s.phase == processed && s.offset >= floor:
		v.Processed++
	case s.phase == failed && s.offset >= floor:
		v.Failed++
	}
	return v
}
