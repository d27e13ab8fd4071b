// SPDX-License-Identifier: Apache-2.0

// Package journal is a ledger of one partition that writes per window in place of per record. Its states are in memory, where
// calls step them, and a journal in a store says what the next owner has to know of them. It is for one owner at a time, who has
// claimed the partition; the claim fences every write. An offset belongs to one domain, as in a source.
//
// # What is written, and when
//
// Before a record is leased, the journal says that all offsets up to a later one have begun: one entry for a window of hundreds
// of records, and usually ahead of them. Of what succeeds it says so within 50 ms, many at a time. A crash in between repeats
// work, as one does between an effect and its completion. Every other change is written by the name of its domain before the call
// returns: a failure, a release, a reclaimed lease, a backlog, and what becomes of a domain that has one of those.
//
// # After a crash
//
// What had begun under a claim that was not closed, and is not done, may have been running. It is nobody's lease, so it makes no
// suspects and counts no attempt. Under the next claims each of these records is leased by name: written before the call
// returns, and found in Held if the process dies again.
//
// # Tokens
//
// A token is the number of the claim above 29 bits of a counter. Claims rise, and with them the tokens of every domain. A claim's
// number is the time in seconds where that is more than the last one's: tokens rise although a journal was lost, and above those
// of a durable.Ledger.
//
// # The claim
//
// A lease is granted only while the last write that the store accepted was sent no longer than Config.Fresh ago. Otherwise one is
// made first, even of nothing. So an owner that does not hear from its store begins no record, and one that was frozen hears
// first that it has lost the ledger: the error is a dispatch.ErrLost.
package journal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/stopbank/stopbank/lease"
	"github.com/stopbank/stopbank/lease/dispatch"
	"github.com/stopbank/stopbank/lease/durable"
	"github.com/stopbank/stopbank/lease/internal/memory"
	"github.com/stopbank/stopbank/lease/internal/step"
)

// Config configures a ledger.
type Config struct {
	Store  Store
	Name   string        // of the partition; part of every entry's checksum
	Fresh  time.Duration // how long after an accepted write leases are granted without another one
	Growth int           // in bytes, after which the journal is written anew, if it is four times what it was; 0: 64 KiB
	Ledger lease.Config
}

// Ledger is a lease.Ledger under a claim.
type Ledger struct {
	lease.Ledger
	e *engine
}

const (
	claimShift = 29
	mostClaims = 1 << (63 - claimShift) // five hundred years of seconds
	flushAfter = 50 * time.Millisecond  // from the first success that is not written
	sendLimit  = 5 * time.Second        // of one write

	// A window is so many offsets that so many records, more or less, are leased in it.
	leastWindow, mostWindow   = 256, 1 << 20
	leastRecords, mostRecords = 512, 2048
)

// engine is the step.Engine of a Ledger.
type engine struct {
	cfg         Config
	fencer      Fencer // nil: the store has no transactions
	mem         *memory.Engine
	first, last uint64 // the tokens of this claim
	ctx         context.Context
	stop        context.CancelFunc

	mu sync.Mutex // guards all below; nothing foreign runs under it, and locks of mem are taken under it

	lost    error // why nothing is written any more; nil: it is
	closing bool  // Close writes the last
	floor   int64

	// What former owners have done, in order.
	restored, restoredGiven []int64
	// zone: what former owners have begun, up to here, may have been running when one of them died. Below the floor: nothing.
	zone int64

	// What the journal says has begun, what it shall say next, and by how many offsets that is ahead; grants are the leases since.
	begun, begin, window int64
	grants               int

	live    map[string]bool   // the domains that have a lease or a backlog by name
	inTx    map[string]uint64 // tokens under which a transaction may have finished a record
	dirty   map[string]*batch // the domains whose state is not written, and what it will be written with
	success []int64           // not written
	giveUp  []int64           // not written; with domains of dirty

	next     *batch // what is written next
	asked    bool   // it is to be written now
	writing  bool   // a goroutine writes
	timer    *time.Timer
	accepted time.Time // when the last accepted write was sent
	size     int       // of the journal, since it was written anew
	base     int       // its size then
}

// batch is what is written at a time.
type batch struct {
	over chan struct{} // closed when it is written, or was not
	err  error         // set before
}

func newBatch() *batch { return &batch{over: make(chan struct{})} }

// Open claims the ledger and reads its journal. It blocks for as long as that takes. Errors: the store's, durable.ErrCorrupt,
// durable.ErrNewer, durable.ErrExhausted.
func Open(ctx context.Context, cfg Config) (*Ledger, error) {
	if cfg.Growth == 0 {
		cfg.Growth = 64 << 10
	}
	sent := time.Now()
	number, err := cfg.Store.Claim(ctx)
	if err != nil {
		return nil, err
	}
	if number >= mostClaims {
		return nil, fmt.Errorf("%w: ledger %q has no more claims", durable.ErrExhausted, cfg.Name)
	}
	f, size := noFacts(), 0
	if err := cfg.Store.Read(ctx, func(entry []byte) error {
		size += len(entry)
		return f.read(cfg.Name, entry)
	}); err != nil {
		return nil, err
	}
	slices.Sort(f.done)
	slices.Sort(f.given)
	states, err := f.states(cfg.Name)
	if err != nil {
		return nil, err
	}
	e := &engine{
		cfg: cfg, mem: memory.New(number<<claimShift, 1), first: number << claimShift, last: (number + 1) << claimShift,
		floor: f.floor, restored: slices.Compact(f.done), restoredGiven: slices.Compact(f.given),
		zone: f.begun, begun: f.begun, begin: f.begun, window: leastWindow,
		live: map[string]bool{}, inTx: map[string]uint64{}, dirty: map[string]*batch{}, next: newBatch(), accepted: sent, size: size,
	}
	e.fencer, _ = cfg.Store.(Fencer)
	e.ctx, e.stop = context.WithCancel(context.Background())
	_ = e.mem.Compact(ctx, f.floor) // of an empty engine
	e.trimLocked()
	for domain, s := range states {
		if l, _ := s.Leased(); l.Token >= e.first {
			return nil, fmt.Errorf("%w: ledger %q: domain %q has token %d, of a later claim than %d: the claims were put back",
				durable.ErrCorrupt, cfg.Name, domain, l.Token, number)
		}
		e.mem.Restore(domain, s)
		if s.Index() != step.Neither {
			e.live[domain] = true
		}
	}
	return &Ledger{lease.FromEngine(e, cfg.Ledger), e}, nil
}

// Close writes what is not written, and ends the ledger: later calls are rejected as lost. If every lease has ended or was
// released, nothing was running, and the next owner begins without care. It blocks for a write; it is not needed after a crash.
func (l *Ledger) Close(ctx context.Context) error {
	e := l.e
	e.mu.Lock()
	defer e.mu.Unlock()
	err := e.lost
	if err == nil {
		e.closing = true
		running := false
		for item := range e.mem.List(ctx, step.Held) {
			running = running || !item.Released
		}
		if !running {
			e.begin = e.zone
		}
		err = e.awaitLocked(ctx, e.flushLocked())
	}
	if e.lost == nil {
		e.lost = e.lostFor(errClosed)
	}
	if e.timer != nil {
		e.timer.Stop()
	}
	e.stop()
	return err
}

var (
	errClosed    = errors.New("lease: the ledger is closed")
	errExhausted = fmt.Errorf("%w: this claim has no more tokens", durable.ErrExhausted)
)

func (e *engine) lostFor(reason error) error { return dispatch.Lost(e.cfg.Name, reason) }

// Store returns Config.Store.
func (l *Ledger) Store() Store { return l.e.cfg.Store }

// Finishing says that a transaction of the handler is about to finish the record of a lease. Errors: *lease.TokenMismatchError,
// *lease.LeaseNotFoundError: the lease is lost.
func (l *Ledger) Finishing(held lease.Lease) error {
	e := l.e
	e.mu.Lock()
	defer e.mu.Unlock()
	s, _ := e.mem.Inspect(e.ctx, held.Domain) // it has no errors
	switch token := uint64(held.Token); {
	case e.lost != nil, s.Token != 0 && (s.Token != token || s.Offset != held.Offset || s.Released):
		return &lease.TokenMismatchError{Domain: held.Domain, Offset: s.Offset, Got: held.Token}
	case s.Token == 0:
		// It is refused, and says how the lease ended.
		r, _ := e.mem.Do(e.ctx, step.Op{Kind: step.Release, Domain: held.Domain, Token: token})
		return &lease.LeaseNotFoundError{Domain: held.Domain, Got: held.Token, Status: lease.Status(r.Status), Offset: r.Offset}
	default:
		e.inTx[held.Domain] = token
	}
	return nil
}

// Do implements step.Engine.
func (e *engine) Do(ctx context.Context, op step.Op) (r step.Result, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.admitLocked(ctx, &op); err != nil {
		return r, e.rejected(&op, err)
	}
	if e.knownLocked(&op, &r) {
		return r, nil
	}
	r, _ = e.mem.Do(ctx, op) // it has no errors
	if r.Changed && r.Token >= e.last {
		e.lost = e.lostFor(errExhausted)
		return r, e.lost
	}
	if r.Changed && !e.byNameLocked(&op, &r) {
		return r, nil
	}
	b := e.dirty[op.Domain]
	if r.Changed {
		b = e.nameLocked(op.Domain)
	}
	if b != nil { // also an answer that tells what another call has changed
		if err := e.awaitLocked(ctx, b); err != nil {
			return r, e.unwritten(&op, r.Changed, err)
		}
	}
	for (op.Kind.Grants() || op.Kind == step.Reclaim) && r.Changed && !e.freshLocked() {
		if err := e.awaitLocked(ctx, e.flushLocked()); err != nil {
			return r, e.unwritten(&op, true, err)
		}
	}
	return r, nil
}

// admitLocked makes sure of what must be written before op may be carried out.
func (e *engine) admitLocked(ctx context.Context, op *step.Op) error {
	for {
		limit := e.cfg.Store.Limit() / 2
		switch {
		case e.lost != nil:
			return e.lost
		case e.closing:
			return e.lostFor(errClosed)
		case op.Kind != step.TryAcquire && op.Kind != step.Offer:
		case len(op.Domain)+overhead > limit:
			return &lease.InvalidError{Field: "domain", Value: fmt.Sprintf("%d bytes", len(op.Domain)),
				Allowed: fmt.Sprintf("at most %d, of which the store can write a lease", limit-overhead)}
		case e.queuesLocked(op) && len(op.Domain)+overhead+len(e.mem.AppendLive(nil, op.Domain)) > limit:
			return fmt.Errorf("%w: domain %q: no room for offset %d in an entry of %d bytes", lease.ErrBacklogFull, op.Domain,
				op.Offset, limit)
		}
		if op.Kind != step.TryAcquire || op.Offset <= e.begun && e.freshLocked() {
			return e.fenceLocked(ctx, op)
		}
		e.beginLocked(op.Offset)
		if err := e.awaitLocked(ctx, e.flushLocked()); err != nil {
			return err
		}
	}
}

// queuesLocked reports whether op would add its offset to a backlog.
func (e *engine) queuesLocked(op *step.Op) bool {
	if !e.live[op.Domain] {
		return false
	}
	s, _ := e.mem.Inspect(e.ctx, op.Domain) // it has no errors
	return (op.Kind == step.Offer || s.Token != 0) && s.Offset != op.Offset && !slices.Contains(s.Backlog, op.Offset)
}

// freshLocked reports whether leases may be granted.
func (e *engine) freshLocked() bool { return time.Since(e.accepted) < e.cfg.Fresh }

// nearLocked reports whether offset is in the second half of the window that has begun, or beyond it.
func (e *engine) nearLocked(offset int64) bool {
	return e.begin < math.MinInt64+e.window || offset > e.begin-e.window/2
}

// beginLocked has the journal say that the offsets up to a window behind offset have begun.
func (e *engine) beginLocked(offset int64) {
	if !e.nearLocked(offset) {
		return
	}
	switch {
	case e.grants < leastRecords && e.window < mostWindow:
		e.window *= 2
	case e.grants > mostRecords && e.window > leastWindow:
		e.window /= 2
	}
	e.grants = 0
	e.begin = math.MaxInt64
	if offset < math.MaxInt64-e.window {
		e.begin = offset + e.window
	}
}

// knownLocked answers for an offset that a former owner has done.
func (e *engine) knownLocked(op *step.Op, r *step.Result) bool {
	if op.Kind != step.TryAcquire && op.Kind != step.Offer || op.Offset < e.floor {
		return false
	}
	switch {
	case has(e.restored, op.Offset):
		r.Status = step.AlreadyProcessed
	case has(e.restoredGiven, op.Offset):
		r.Status = step.AlreadyFailed
	}
	return r.Status != 0
}

// byNameLocked notes a change. It reports whether the change has to be written by the name of its domain, before it is answered.
func (e *engine) byNameLocked(op *step.Op, r *step.Result) bool {
	switch {
	case op.Kind == step.Succeed:
		delete(e.inTx, op.Domain)
		e.success = append(e.success, r.Offset)
	case op.Kind == step.Fail && r.Status != step.RetryScheduled:
		e.giveUp = append(e.giveUp, r.Offset)
	}
	switch {
	case e.live[op.Domain]:
	case op.Kind == step.Succeed:
		e.soonLocked()
		return false
	case op.Kind == step.TryAcquire && r.Status == step.Acquired && op.Offset > e.zone:
		if e.grants++; e.nearLocked(op.Offset) {
			e.beginLocked(op.Offset)
			e.flushLocked()
		}
		return false
	}
	return true
}

// nameLocked has the state of a domain written by name.
func (e *engine) nameLocked(domain string) *batch {
	s, _ := e.mem.Inspect(e.ctx, domain) // it has no errors
	if s.Token != 0 || len(s.Backlog) > 0 {
		e.live[domain] = true
	} else {
		delete(e.live, domain)
	}
	e.dirty[domain] = e.next
	return e.flushLocked()
}

// fenceLocked makes sure that no transaction of a handler without the lease finishes the record that op is about, and notices
// what one has finished.
func (e *engine) fenceLocked(ctx context.Context, op *step.Op) error {
	if e.fencer == nil {
		return nil
	}
	for {
		s, _ := e.mem.Inspect(ctx, op.Domain) // it has no errors
		offset, least := op.Offset, e.first
		switch {
		case op.Kind.Grants() && s.Token != 0: // nothing is granted
			return nil
		case op.Kind.Grants() && len(s.Backlog) > 0:
			if offset = s.Backlog[0]; op.Kind == step.TryAcquire && op.Offset != offset {
				return nil
			}
		case op.Kind == step.TryAcquire && !has(e.restored, op.Offset) && op.Offset >= e.floor:
		case op.Token != 0 && op.Token == s.Token && (op.Token < e.first || e.inTx[op.Domain] == op.Token) && op.Kind != step.Succeed:
			if offset, least = s.Offset, op.Token; op.Kind != step.Fail {
				least++ // who gave the lease back, or lost it, finishes nothing any more
			}
		default:
			return nil
		}
		if op.Kind.Grants() && offset > e.zone {
			return nil
		}
		e.mu.Unlock()
		until, ok, err := e.fencer.Fence(ctx, op.Domain, least)
		e.mu.Lock()
		switch {
		case e.lost != nil:
			return e.lost
		case err != nil:
			return fmt.Errorf("%w: domain %q: %w", durable.ErrStore, op.Domain, err)
		case !ok || until < offset:
			return nil
		}
		e.finishedLocked(ctx, op, offset)
	}
}

// finishedLocked takes down that a transaction has finished a record.
func (e *engine) finishedLocked(ctx context.Context, op *step.Op, offset int64) {
	s, _ := e.mem.Inspect(ctx, op.Domain)
	switch {
	case s.Token == 0 && len(s.Backlog) == 0:
		i, _ := slices.BinarySearch(e.restored, offset)
		e.restored = slices.Insert(e.restored, i, offset)
		e.success = append(e.success, offset)
		e.soonLocked()
		return
	case s.Token == 0:
		g, _ := e.mem.Do(ctx, step.Op{Kind: step.AcquireNext, Domain: op.Domain})
		s.Token = g.Token
	case s.Released:
		g, _ := e.mem.Do(ctx, step.Op{Kind: step.Reclaim, Domain: op.Domain, Token: s.Token})
		s.Token = g.Token
	}
	done := step.Op{Kind: step.Succeed, Domain: op.Domain, Token: s.Token}
	if r, _ := e.mem.Do(ctx, done); r.Changed {
		e.byNameLocked(&done, &r)
		e.nameLocked(op.Domain)
	}
}

// rejected is the answer to a call that changed nothing.
func (e *engine) rejected(op *step.Op, err error) error {
	if op.Token != 0 && errors.Is(err, dispatch.ErrLost) {
		return &lease.TokenMismatchError{Domain: op.Domain, Got: lease.Token(op.Token)}
	}
	return err
}

// unwritten is the answer to a call whose change, or whose reason for changing nothing, could not be written.
func (e *engine) unwritten(op *step.Op, changed bool, err error) error {
	if !changed || errors.Is(err, dispatch.ErrLost) {
		return e.rejected(op, err)
	}
	return fmt.Errorf("%w: domain %q: it is written with the next call that the store answers: %s", durable.ErrAmbiguous, op.Domain,
		err.Error())
}

// Compact implements step.Engine.
func (e *engine) Compact(ctx context.Context, floor int64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lost != nil {
		return e.lost
	}
	if err := e.mem.Compact(ctx, floor); err != nil {
		return err
	}
	raised := floor > e.floor
	e.floor = floor
	e.trimLocked()
	if err := e.awaitLocked(ctx, e.flushLocked()); err != nil {
		return e.unwritten(&step.Op{Kind: step.Compact}, raised, err)
	}
	return nil
}

// trimLocked forgets what the floor says as well.
func (e *engine) trimLocked() {
	below := func(offset int64) bool { return offset < e.floor }
	for _, offsets := range []*[]int64{&e.restored, &e.restoredGiven} {
		i, _ := slices.BinarySearch(*offsets, e.floor)
		*offsets = slices.Delete(*offsets, 0, i)
	}
	e.success, e.giveUp = slices.DeleteFunc(e.success, below), slices.DeleteFunc(e.giveUp, below)
	if e.zone < e.floor {
		e.zone = math.MinInt64
	}
}

// Inspect implements step.Engine. It does not count what former owners have done.
func (e *engine) Inspect(ctx context.Context, domain string) (step.Snapshot, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lost != nil {
		return step.Snapshot{}, e.lost
	}
	s, err := e.mem.Inspect(ctx, domain)
	if b := e.dirty[domain]; b != nil && err == nil {
		err = e.awaitLocked(ctx, b)
	}
	return s, err
}

// List implements step.Engine.
func (e *engine) List(ctx context.Context, index step.Index) iter.Seq2[step.Item, error] {
	e.mu.Lock()
	defer e.mu.Unlock()
	if lost := e.lost; lost != nil {
		return func(yield func(step.Item, error) bool) { yield(step.Item{}, lost) }
	}
	return e.mem.List(ctx, index)
}
