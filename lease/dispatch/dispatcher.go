// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file is the life of a dispatcher: it takes a partition, processes it, and drains.

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stopbank/stopbank/lease"
)

// Dispatcher processes one partition. It must come from New and must not be copied.
type Dispatcher struct {
	cfg  Config
	used atomic.Bool // Run was called

	// partition's Source and Ledger are set once Open has returned them, and Open is nil then. Only Run's goroutine changes
	// them, under mu.
	partition Partition

	// Contexts of one Run, set before its first goroutine starts. runCtx ends when the drain begins; handlerCtx when handlers
	// and commits that began before it have had their time; ledgerCtx when Run returns.
	runCtx, handlerCtx, ledgerCtx context.Context
	lose                          context.CancelCauseFunc // ends runCtx, with an ErrLost

	slots           *slots
	account         account    // this partition's, of the slots
	records, trials *allotment // of MaxBuffered, and of the one trial that all partitions share

	log string // the identity of the source's log; "": not known. Only the goroutine that takes the partition, then the commit loop

	committing chan struct{} // capacity 1: held while a floor is being committed to the source

	mu      sync.Mutex // guards all below; never held while the ledger, the source, a handler or an observer runs
	domains map[string]*domain
	owners  map[string]*owner

	onTrial        *domain          // the suspect whose attempt runs; nil: none
	trialElsewhere bool             // another partition has a suspect on trial
	trialGranted   bool             // the trial that was waited for is this partition's, and has not begun
	active         int              // goroutines that work on a domain
	buffered       int              // records in the queues
	size           int              // as how many records one of the last Fetch counts; only the fetch loop uses it
	resting        map[*domain]bool // those that rest with more than a record, and some that do no more

	// watched are the domains that a read concerns even if it brings no record of theirs: those with deferred records, and
	// those that wait for a record, which may be lost. A read does not examine the others, however many they are.
	watched        []*domain
	deferredOwners []*owner
	position       int64 // every record below was read: it is in a queue, done, or deferred
	taken          bool  // position is valid

	draining     bool
	closed       bool               // Run has returned, or is about to: nothing is written any more
	paused       bool               // fetching waits for room
	cancelFetch  context.CancelFunc // of the Fetch that waits at position; nil while none does
	floors       floors
	rewound      error    // an ErrRewound: nothing is read and committed; nil: it is
	stallReason  string   // why nothing had ended when watchForStalls looked
	lastProgress progress // at that time

	count                   map[Kind]uint64 // the events of domains; of those of GaveUp also, in part, permanent and died
	permanent, died, panics uint64

	wakeFetch chan struct{} // to the fetch loop: there is room, or deferred records are to be read; capacity 1
	drained   chan struct{} // closed when a drain has nothing left to wait for
}

// New returns a Dispatcher of one partition. It starts no goroutine and calls none of its parts. Error: *lease.InvalidError
// naming the field.
func New(partition Partition, cfg Config) (*Dispatcher, error) {
	if err := partition.check(); err != nil {
		return nil, err
	}
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	return sharing(partition, cfg, newSlots(cfg), &semaphore{limit: cfg.MaxBuffered, ofRecords: true}, &semaphore{limit: 1}), nil
}

// sharing returns a Dispatcher with its part of the slots and semaphores. Its Run releases them.
func sharing(partition Partition, cfg Config, slots *slots, records, trials *semaphore) *Dispatcher {
	d := &Dispatcher{
		partition: partition, cfg: cfg, domains: map[string]*domain{}, owners: map[string]*owner{}, resting: map[*domain]bool{},
		slots: slots, count: map[Kind]uint64{},
		position:  math.MaxInt64,
		wakeFetch: make(chan struct{}, 1), committing: make(chan struct{}, 1), drained: make(chan struct{}),
	}
	d.records = records.join(d.signalRoom)
	d.trials = trials.join(func() { go d.beginTrial() })
	return d
}

// Run takes the partition and processes it until ctx is done. Then it drains: no new attempt begins, running handlers
// may end within DrainTimeout, the floor is committed, and unfinished records are left to the next owner of the
// partition. It returns nil after a drain that left nothing unfinished, and an ErrDrain after any other. A second Run is
// a *lease.InvalidError: when a partition comes back, make a new Dispatcher. So is a nil ctx, or a Dispatcher that New did
// not make. Other failures do not end it, and are sent to the Observer.
//
// When the partition is lost, because the Source returns an ErrLost or ctx ends with one as its cause, Run drains without
// a commit, and returns that error, or an ErrDrain that wraps it if a handler was left running.
//
// Run blocks. A handler that ignores its context may outlive it; its result is then ignored.
func (d *Dispatcher) Run(ctx context.Context) error {
	switch {
	case ctx == nil:
		return invalidField("ctx", "nil", "a context")
	case !d.made():
		return invalidField("Dispatcher", "nil or zero", "a dispatcher made by New")
	}
	if d.used.Swap(true) {
		return invalidField("Dispatcher", "one that has run", "a new one for each Run")
	}
	lasting := context.WithoutCancel(ctx)
	ledgerCtx, endLedger := context.WithCancel(lasting)
	defer endLedger()
	handlerCtx, endHandlers := context.WithCancel(lasting)
	defer endHandlers()
	runCtx, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	d.runCtx, d.handlerCtx, d.ledgerCtx, d.lose = runCtx, handlerCtx, ledgerCtx, lose
	defer d.leaveSlots() // a handler that outlives this has its slot until it ends
	defer d.trials.leave()
	defer d.records.leave()
	defer d.records.release(math.MaxInt)

	var loops sync.WaitGroup
	loops.Go(d.watchForStalls)
	if !d.take() {
		loops.Wait()
		lost := lostIn(context.Cause(runCtx))
		if lost == nil {
			return nil
		}
		d.observe(Event{Kind: Drained, Err: lost})
		return lost
	}
	loops.Go(d.fetch)
	loops.Go(d.commitLoop)
	<-runCtx.Done()
	timeout := time.AfterFunc(d.cfg.DrainTimeout, endHandlers)
	defer timeout.Stop()
	d.beginDrain()
	loops.Wait()
	return d.drain()
}

// beginDrain takes back all waiting work. Outcomes that are not yet written to the ledger still are.
func (d *Dispatcher) beginDrain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.draining = true
	d.clearReadyLocked()
	d.returnTrialLocked()
	for _, dom := range d.domains {
		if dom.place == ready || dom.place == pausing || dom.place == paced {
			if dom.timer != nil {
				dom.timer.Stop()
			}
			dom.place, dom.until = idle, time.Time{}
			d.placeLocked(dom, time.Now())
		}
	}
	d.endDrainLocked()
}

// drain waits for running handlers, commits the floor, and ends the Run.
func (d *Dispatcher) drain() error {
	select {
	case <-d.drained:
	case <-d.handlerCtx.Done():
		rest := time.NewTimer(d.cfg.DrainTimeout / 10)
		defer rest.Stop()
		select {
		case <-d.drained:
		case <-rest.C:
		}
	}

	d.mu.Lock()
	d.closed = true
	failed := drainError{name: d.partition.Name}
	for _, dom := range d.domains {
		if dom.timer != nil {
			dom.timer.Stop()
		}
		if dom.place == working || dom.finishes() {
			failed.abandoned++
		}
	}
	d.mu.Unlock()

	ctx, cancel := context.WithTimeout(d.ledgerCtx, d.cfg.DrainTimeout)
	defer cancel()
	lost := lostIn(context.Cause(d.runCtx))
	if failed.commit = lost; lost == nil {
		failed.commit = d.commit(ctx)
		lost = lostIn(failed.commit)
	}
	d.releaseLeases(ctx)
	err := lost
	if failed.abandoned > 0 || lost == nil && failed.commit != nil {
		err = &failed
	}
	d.observe(Event{Kind: Drained, Offset: d.Stats().Floor, Err: err})
	return err
}

// endIfLost ends the Run if err is an ErrLost, and reports whether it is.
func (d *Dispatcher) endIfLost(err error) bool {
	lost := lostIn(err)
	if lost != nil {
		d.lose(lost)
	}
	return lost != nil
}

// lostIn returns err if it is an ErrLost, and nil otherwise.
func lostIn(err error) error {
	if errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

// releaseLeases releases the leases that the drain leaves, so that the next owner finds no suspects and counts no attempts. A
// suspect that has not had its trial stays one.
func (d *Dispatcher) releaseLeases(ctx context.Context) {
	d.mu.Lock()
	var left []lease.Lease
	for _, dom := range d.domains {
		if dom.holds() {
			left = append(left, dom.lease)
		}
	}
	d.mu.Unlock()
	for _, l := range left {
		if err := d.partition.Ledger.Release(ctx, l.Domain, l.Token); err != nil && !isFence(err) && ctx.Err() == nil {
			d.observeLease(l, Event{Kind: LedgerError, Err: err})
		}
	}
}

// endDrainLocked closes drained once the drain has nothing left to wait for.
func (d *Dispatcher) endDrainLocked() {
	if !d.draining || d.active > 0 {
		return
	}
	for _, dom := range d.domains {
		if dom.finishes() {
			return
		}
	}
	select {
	case <-d.drained:
	default:
		close(d.drained)
	}
}

// beginTrial is called when this partition has been granted the trial that it waited for. Trials are handed from partition to
// partition: otherwise the one that has just had one would take the next as well.
func (d *Dispatcher) beginTrial() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.trialElsewhere, d.trialGranted = false, true
	if !d.requestForSuspectsLocked() {
		d.returnTrialLocked()
	}
}

// returnTrialLocked releases a trial that was granted and has not begun.
func (d *Dispatcher) returnTrialLocked() {
	if d.trialGranted {
		d.trialGranted = false
		d.trials.release(1)
	}
}

func (d *Dispatcher) endTrial(dom *domain) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.endTrialLocked(dom)
}

// endTrialLocked ends dom's trial, if it is on one, so that the next suspect's can begin.
func (d *Dispatcher) endTrialLocked(dom *domain) {
	if d.onTrial == dom {
		d.onTrial = nil
		d.trials.release(1)
		d.requestForSuspectsLocked()
	}
}
