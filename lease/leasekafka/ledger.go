package leasekafka

// This file is a partition's ledger in memory. It notes what the next owner should know, for the commits to say.

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

// ledger is a lease.Ledger of one owner of a partition. It begins with what the one before had committed: what was done stays done, what
// was tried goes on, what ran then has a lease. Inspect does not count what others did. Fail and GiveUp wait until a commit has the
// failure; when ctx is done before, they return its error though the failure counts here.
type ledger struct {
	cfg  lease.Config
	lost func() error // why no call is answered any more

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

// epochBits is what an epoch is shifted by: tokens of one owner are below those of the next.
const epochBits = 29

// newLedger returns the ledger of an owner after whom committed floor and m. An epoch is a time in seconds, or follows the one before: a
// group whose metadata was lost goes on with greater tokens all the same.
func newLedger(cfg lease.Config, floor int64, m memo, lost func() error) *ledger {
	_ = lease.Retries("Config.Memory.MaxRetries", &cfg.MaxRetries) // it has been checked
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

// restoreLease makes the lease that a had. The lock is held, or nobody else has l.
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
	if s.UnmarshalBinary(b) == nil { // which it is by how it was made
		l.states[a.domain], l.open[a.offset] = s, a
	}
}

// do carries op out and notes what it came to.
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

// admit turns away what no state has to be looked at for.
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

// all stands for the domain where every one is meant.
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

// before answers for what an earlier owner did with an offset. A failure goes on in the domain that its record turns out to be of.
func (l *ledger) before(op *lease.Op, s *lease.State, r *lease.Result) bool {
	if s != nil {
		if held, ok := s.Leased(op.Domain); ok && held.Offset == op.Offset {
			return false // live, whatever else is said of it
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
	default: // something waits, which the log knows
		return
	}
	l.changes++
}

// gap notes that the log has nothing from first to last.
func (l *ledger) gap(first, last int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first = max(first, l.floor); first <= last {
		l.done = l.done.add(first, last)
	}
}

// text is what a commit at floor says, and the number of the changes that are in it.
func (l *ledger) text(floor int64) (text string, changes uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.memo(floor)
	return m.text(floor), l.changes
}

// memo is what there is to say. The lock is held.
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

// full: what is known above floor takes three quarters of what a commit may say, but for what runs, which ends or is left out. All of
// it is below top.
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

// overdue: there are changes that no commit has, and there has been none since saved was as it says. It is brought up to date.
func (l *ledger) overdue(saved *uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := *saved
	*saved = l.saved
	return l.saved < l.changes && l.saved == before
}

// keeps notes that a commit has so many changes, and wakes who waits for one; also if that was in vain.
func (l *ledger) keeps(changes uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.saved = max(l.saved, changes)
	close(l.progress)
	l.progress = make(chan struct{})
}

// safe waits until a commit has all that has changed by now.
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
	return l.fail(ctx, lease.Op{Kind: lease.OpFail, Domain: domain, Token: token, MaxRetries: lease.NoRetries})
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

// Compact looks at every domain that has something above the floor.
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
		_ = s.Step(&lease.Op{Kind: lease.OpCompact, Floor: floor}, &lease.Result{}) // it fails never
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

// walk yields what show makes of the states, as they are when it begins, under no lock.
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
