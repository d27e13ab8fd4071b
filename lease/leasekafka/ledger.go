package leasekafka

// This file is a partition's ledger in memory. It collects the state that commits pass to the next owner.

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/stopbank/stopbank/lease"
)

// ledger is a lease.Ledger of one owner of a partition. It starts from the state that the previous owner committed: done offsets stay done,
// failed attempts count, running records have a lease. Inspect does not count earlier owners' results. Fail and GiveUp wait until the
// failure is committed; if ctx ends first, they return its error, and the failure still counts here.
type ledger struct {
	cfg  lease.Config
	lost func() error // returns the cause of losing the partition; nil while it is held

	mu     sync.Mutex // guards all below; no other lock is taken under it
	states map[string]*lease.State
	floor  int64
	token  lease.Token // the last

	// What owners before did.
	restored memo              // of which tried and running have become states, or are unread
	unread   map[int64]attempt // failures of records that have not been read yet

	// What commits say.
	epoch     uint64
	done      spans
	given     map[int64]bool
	open      map[int64]attempt // begun and not done
	changes   uint64
	saved     uint64        // of the changes, those that a commit has
	progress  chan struct{} // closed when saved rises, or the partition is lost
	commitNow chan struct{} // somebody waits for a commit; room for one
}

var _ lease.Ledger = (*ledger)(nil)

// epochBits is the shift of the epoch in a token: one owner's tokens are below the next owner's.
const epochBits = 29

// newLedger returns a ledger restored from a committed floor and m. The epoch is the time in seconds, or the previous epoch plus one, so
// tokens grow even if the group's metadata is lost.
func newLedger(cfg lease.Config, floor int64, m memo, lost func() error) *ledger {
	l := &ledger{
		cfg: cfg, lost: lost, states: map[string]*lease.State{}, floor: floor, restored: m, done: slices.Clone(m.done),
		given: map[int64]bool{}, open: map[int64]attempt{}, unread: map[int64]attempt{}, changes: 1,
		progress: make(chan struct{}), commitNow: make(chan struct{}, 1),
	}
	l.epoch = max(m.epoch+1, uint64(time.Now().Unix()))
	l.token = lease.Token(l.epoch << epochBits)
	for _, o := range m.given {
		l.given[o] = true
	}
	for _, a := range m.tried {
		l.unread[a.offset] = a
	}
	for _, a := range m.running {
		delete(l.unread, a.offset)
		l.restoreLease(a)
	}
	return l
}

// restoreLease restores the lease of a. The lock is held, or l is not shared yet.
func (l *ledger) restoreLease(a attempt) {
	l.token++
	format, leased := byte(1), byte(1) // as lease.State.AppendBinary has them
	if !a.running {
		format = 2
	}
	b := binary.AppendVarint([]byte{format, leased}, a.offset)
	b = binary.AppendUvarint(b, uint64(l.token))
	b = binary.AppendVarint(b, a.at*int64(time.Millisecond))
	b = binary.AppendUvarint(b, uint64(a.retries))
	s := &lease.State{}
	if s.UnmarshalBinary(b) == nil { // always, by construction
		l.states[a.domain], l.open[a.offset] = s, a
	}
}

// do runs op and records its result for the next commit.
func (l *ledger) do(ctx context.Context, op lease.Op) (r lease.Result, err error) {
	if err := l.admit(ctx, op.Domain); err != nil {
		return r, err
	}
	if lost := l.lost(); lost != nil {
		if op.Token == 0 {
			return r, lost
		}
		return r, &lease.TokenMismatchError{Domain: op.Domain, Got: op.Token}
	}
	if op.MaxBacklog = l.cfg.MaxBacklog; op.MaxRetries == 0 {
		op.MaxRetries = l.cfg.MaxRetries
	}
	l.mu.Lock()
	err = l.step(&op, &r)
	l.mu.Unlock()
	if l.cfg.Observer != nil {
		lease.Report(l.cfg.Observer, &op, &r, err)
	}
	return r, err
}

// admit rejects calls that need no state to be rejected.
func (l *ledger) admit(ctx context.Context, domain string) error {
	switch {
	case ctx == nil:
		return &lease.InvalidError{Field: "ctx", Value: "nil", Allowed: "a context"}
	case ctx.Err() != nil:
		return ctx.Err()
	case domain == "" || len(domain) > math.MaxUint16:
		return &lease.InvalidError{Field: "domain", Value: fmt.Sprintf("%d bytes", len(domain)), Allowed: "1 to 65535 bytes"}
	}
	return nil
}

// all stands for every domain.
const all = "all"

// step has the lock.
func (l *ledger) step(op *lease.Op, r *lease.Result) error {
	s := l.states[op.Domain]
	if op.Kind == lease.OpOffer || op.Kind == lease.OpTryAcquire {
		if l.before(op, s, r) {
			return nil
		}
		s = l.states[op.Domain]
	}
	if s == nil {
		s = &lease.State{} // is kept only if op leaves something in it
	}
	op.Floor, op.Fresh, op.Now = l.floor, l.token+1, time.Now().UnixNano()
	err := s.Step(op, r)
	if r.Changed {
		l.states[op.Domain] = s
		l.note(op, r)
	}
	return err
}

// before applies an earlier owner's result for an offset. A failed attempt continues in the domain of its record, once that is read.
func (l *ledger) before(op *lease.Op, s *lease.State, r *lease.Result) bool {
	if s != nil {
		if held, ok := s.Leased(op.Domain); ok && held.Offset == op.Offset {
			return false // it has a live state
		}
	}
	switch a, tried := l.unread[op.Offset]; {
	case op.Offset < l.floor:
	case tried:
		delete(l.unread, op.Offset)
		if s == nil {
			a.domain = op.Domain
			l.restoreLease(a)
		}
	case l.restored.done.has(op.Offset):
		r.Acquire = lease.AlreadyProcessed
	case l.restored.gaveUp(op.Offset):
		r.Acquire = lease.AlreadyFailed
	}
	return r.Acquire != 0
}

// note has the lock.
func (l *ledger) note(op *lease.Op, r *lease.Result) {
	if r.Token == op.Fresh {
		l.token = op.Fresh
	}
	a := attempt{offset: r.Offset, at: max(0, r.AcquiredAt/int64(time.Millisecond)), retries: r.RetryCount, domain: op.Domain, running: !r.Released}
	switch {
	case op.Kind == lease.OpSucceed:
		delete(l.open, r.Offset)
		l.done = l.done.add(r.Offset, r.Offset)
	case op.Kind == lease.OpFail && r.Fail != lease.RetryScheduled:
		delete(l.open, r.Offset)
		l.given[r.Offset] = true
	case r.Token != 0:
		l.open[r.Offset] = a
	default: // a waiting record, which is in the log anyway
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
	m := l.memo(floor)
	return m.text(floor), l.changes
}

// memo returns the state to commit. The lock is held.
func (l *ledger) memo(floor int64) memo {
	m := memo{epoch: l.epoch, done: slices.Clone(l.done).from(floor)}
	for o := range l.given {
		if o >= floor {
			m.given = append(m.given, o)
		}
	}
	slices.Sort(m.given)
	for _, some := range []map[int64]attempt{l.open, l.unread} {
		for o, a := range some {
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

// full reports whether the state above floor takes three quarters of a commit's metadata, without running records, which end or can
// be left out. All of it is below top.
func (l *ledger) full(floor int64) (top int64, full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.memo(floor)
	m.running = nil
	if n := len(l.done); n > 0 {
		top = l.done[n-1].last + 1
	}
	return top, len(m.text(floor)) >= fullText
}

// overdue reports whether uncommitted changes exist and no commit has happened since the last call. It updates the caller's saved.
func (l *ledger) overdue(saved *uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := *saved
	*saved = l.saved
	return l.saved < l.changes && l.saved == before
}

// keeps records how many changes are committed, and wakes the calls that wait for a commit, also after a failed one.
func (l *ledger) keeps(changes uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.saved = max(l.saved, changes)
	close(l.progress)
	l.progress = make(chan struct{})
}

// safe waits until all changes so far are committed.
func (l *ledger) safe(ctx context.Context, domain string, token lease.Token) error {
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
			return ctx.Err()
		}
	}
	return nil
}

func (l *ledger) TryAcquire(ctx context.Context, domain string, offset int64) (lease.Acquisition, error) {
	r, err := l.do(ctx, lease.Op{Kind: lease.OpTryAcquire, Domain: domain, Offset: offset})
	return lease.Acquisition{Status: r.Acquire, BelowFloor: r.BelowFloor, Lease: r.Lease(domain)}, err
}

func (l *ledger) Succeed(ctx context.Context, domain string, token lease.Token) (lease.Completion, error) {
	r, err := l.do(ctx, lease.Op{Kind: lease.OpSucceed, Domain: domain, Token: token})
	return lease.Completion{Status: r.Complete, Next: r.Next}, err
}

func (l *ledger) Fail(ctx context.Context, domain string, token lease.Token) (lease.Failure, error) {
	return l.fail(ctx, lease.Op{Kind: lease.OpFail, Domain: domain, Token: token})
}

func (l *ledger) GiveUp(ctx context.Context, domain string, token lease.Token) (lease.Failure, error) {
	return l.fail(ctx, lease.Op{Kind: lease.OpFail, Domain: domain, Token: token, MaxRetries: -1})
}

func (l *ledger) fail(ctx context.Context, op lease.Op) (lease.Failure, error) {
	r, err := l.do(ctx, op)
	if err == nil {
		err = l.safe(ctx, op.Domain, op.Token)
	}
	return lease.Failure{Status: r.Fail, RetryCount: int(r.RetryCount), Next: r.Next}, err
}

func (l *ledger) Offer(ctx context.Context, domain string, offset int64) (lease.AcquireStatus, error) {
	r, err := l.do(ctx, lease.Op{Kind: lease.OpOffer, Domain: domain, Offset: offset})
	return r.Acquire, err
}

func (l *ledger) AcquireNext(ctx context.Context, domain string) (lease.Acquisition, error) {
	r, err := l.do(ctx, lease.Op{Kind: lease.OpAcquireNext, Domain: domain})
	return lease.Acquisition{Status: r.Acquire, Lease: r.Lease(domain)}, err
}

func (l *ledger) Reclaim(ctx context.Context, domain string, held lease.Token) (lease.Lease, error) {
	r, err := l.do(ctx, lease.Op{Kind: lease.OpReclaim, Domain: domain, Token: held})
	return r.Lease(domain), err
}

func (l *ledger) Release(ctx context.Context, domain string, token lease.Token) error {
	_, err := l.do(ctx, lease.Op{Kind: lease.OpRelease, Domain: domain, Token: token})
	return err
}

// Compact visits every domain with state above the floor.
func (l *ledger) Compact(ctx context.Context, floor int64) (err error) {
	if err := l.admit(ctx, all); err != nil {
		return err
	}
	l.mu.Lock()
	if floor < l.floor {
		err = &lease.FloorError{Floor: l.floor, Got: floor}
	} else {
		l.compact(floor)
	}
	l.mu.Unlock()
	if l.cfg.Observer != nil {
		lease.Report(l.cfg.Observer, &lease.Op{Kind: lease.OpCompact, Offset: floor}, &lease.Result{Offset: floor}, err)
	}
	return err
}

func (l *ledger) compact(floor int64) {
	l.floor, l.done, l.restored.done = floor, l.done.from(floor), l.restored.done.from(floor)
	maps.DeleteFunc(l.given, func(o int64, _ bool) bool { return o < floor })
	maps.DeleteFunc(l.unread, func(o int64, _ attempt) bool { return o < floor }) // the log has lost it
	for domain, s := range l.states {
		_ = s.Step(&lease.Op{Kind: lease.OpCompact, Floor: floor}, &lease.Result{}) // it cannot fail
		_, held := s.Leased(domain)
		_, waiting := s.Waiting()
		if held || waiting {
			continue
		}
		if v := s.View(domain, floor); v.Processed+v.Failed == 0 {
			delete(l.states, domain)
		}
	}
}

func (l *ledger) Inspect(ctx context.Context, domain string) (lease.View, error) {
	if err := l.admit(ctx, domain); err != nil {
		return lease.View{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.states[domain]
	if s == nil {
		s = &lease.State{}
	}
	return s.View(domain, l.floor), nil
}

func (l *ledger) Ready(ctx context.Context) iter.Seq2[lease.Head, error] {
	return walk(ctx, l, func(domain string, s *lease.State) (lease.Head, bool) {
		offset, ok := s.Waiting()
		return lease.Head{Domain: domain, Offset: offset}, ok
	})
}

func (l *ledger) Held(ctx context.Context) iter.Seq2[lease.Lease, error] {
	return walk(ctx, l, func(domain string, s *lease.State) (lease.Lease, bool) { return s.Leased(domain) })
}

// walk yields show's results for a snapshot of the states. No lock is held while it yields.
func walk[T any](ctx context.Context, l *ledger, show func(string, *lease.State) (T, bool)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		if err := l.admit(ctx, all); err != nil {
			yield(none, err)
			return
		}
		var items []T
		l.mu.Lock()
		for domain, s := range l.states {
			if item, ok := show(domain, s); ok {
				items = append(items, item)
			}
		}
		l.mu.Unlock()
		for _, item := range items {
			if err := ctx.Err(); err != nil {
				yield(none, err)
				return
			}
			if !yield(item, nil) {
				return
			}
		}
	}
}
