package dispatch

// This file is a dispatcher's life: taking a partition, working it off, and the drain.

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

	// Contexts of one Run, set before its first goroutine starts. soft ends when the drain begins; handling when handlers, and commits
	// that began before the drain, have had their time; hard, which is the ledger's, when Run returns.
	soft, handling, hard context.Context
	lose                 context.CancelCauseFunc // ends soft, for a *LostError

	slots           *slots
	share           share  // of the slots
	records, trials *quota // of MaxBuffered, and of the one trial that all partitions have at a time

	committing chan struct{} // room for one: the floor that is being committed to the source

	mu             sync.Mutex // guards all below; never held while the ledger, the source, a handler or an observer runs
	domains        map[string]*domain
	owners         map[string]*owner
	trial          *domain // the suspect that has gone on; nil: none
	trialElsewhere bool    // another partition has a suspect on trial
	granted        bool    // the trial that was waited for is this partition's, and has not begun
	active         int     // goroutines that work on a domain
	buffered       int     // records in the queues
	// attended are the domains that a reading concerns even if it brings no record of theirs: those that are behind, and those that wait for
	// a record, which may be lost. A reading does not look at the others, however many they are.
	attended []*domain
	lagging  []*owner // the owners that are behind
	behind   int      // domains and owners that are behind
	high     int64    // every record below is in a queue, done, or of a domain that is behind it
	begun    bool     // high means something
	// open gets cfg.Source and cfg.Ledger; nil once they are there. Run's goroutine alone changes it, and them.
	open     func(context.Context) (Source, lease.Ledger, error)
	draining bool
	closed   bool               // Run has returned, or is about to: nothing is written any more
	paused   bool               // fetching waits for room
	stop     context.CancelFunc // of the Fetch that waits at high; nil while none does
	count    counters
	where    floors
	stalled  string // why nothing had ended when the watch looked
	seen     sight  // by the watch

	wake  chan struct{} // to the fetch loop: room, or a domain that wants to be read again; room for one
	quiet chan struct{} // closed when a drain has nothing left to wait for
}

// New returns a Dispatcher. It starts no goroutine and calls none of its parts. Error: *InvalidError naming the field.
func New(cfg Config) (*Dispatcher, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	return sharing(cfg, newSlots(cfg), &bound{most: cfg.MaxBuffered, room: true}, &bound{most: 1}), nil
}

// sharing returns a Dispatcher with a part of each bound. Its Run gives them back.
func sharing(cfg Config, slots *slots, records, trials *bound) *Dispatcher {
	d := &Dispatcher{
		cfg: cfg, domains: map[string]*domain{}, owners: map[string]*owner{}, slots: slots,
		high: math.MaxInt64, wake: make(chan struct{}, 1), committing: make(chan struct{}, 1), quiet: make(chan struct{}),
	}
	d.records = records.join(d.readOn)
	d.trials = trials.join(func() { go d.beginTrial() })
	return d
}

// Run takes the partition and processes it until ctx is done. Then it drains: no new attempt begins, running handlers
// may end within DrainTimeout, the floor is committed, and unfinished records are left to the next owner of the
// partition. It returns nil after a drain that left nothing running, and a *DrainError after any other. A second Run is
// an *InvalidError: when a partition comes back, make a new Dispatcher. So is a nil ctx, or a Dispatcher that New did
// not make. Other failures are retried and sent to the Observer.
//
// When the partition is lost, because the Source returns a *LostError or ctx ends with one as its cause, Run drains
// without a commit, and returns the *LostError, or a *DrainError that wraps it if a handler was left running.
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
	hard, release := context.WithCancel(lasting)
	defer release()
	handling, interrupt := context.WithCancel(lasting)
	defer interrupt()
	soft, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	d.soft, d.handling, d.hard, d.lose = soft, handling, hard, lose
	defer d.leaveLines() // a handler that outlives this has its slot until it ends
	defer d.trials.leave()
	defer d.records.leave()
	defer d.records.give(math.MaxInt)

	var loops sync.WaitGroup
	loops.Go(d.watch)
	if !d.take() {
		loops.Wait()
		lost := lostIn(context.Cause(soft))
		if lost == nil {
			return nil
		}
		d.observe(Event{Kind: Drained, Err: lost})
		return lost
	}
	loops.Go(d.fetch)
	loops.Go(d.commits)
	<-soft.Done()
	patience := time.AfterFunc(d.cfg.DrainTimeout, interrupt)
	defer patience.Stop()
	d.halt()
	loops.Wait()
	return d.drain()
}

// halt begins the drain: waiting work will not start. Outcomes that are not yet written to the ledger still are.
func (d *Dispatcher) halt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.draining = true
	d.emptyLines()
	d.returnTrial()
	for _, dom := range d.domains {
		if dom.state == ready || dom.state == pausing {
			if dom.timer != nil {
				dom.timer.Stop()
			}
			dom.state = idle
			d.makeRunnable(dom)
		}
	}
	d.closeIfQuiet()
}

// drain waits for running handlers, commits the floor, and ends the Run.
func (d *Dispatcher) drain() error {
	select {
	case <-d.quiet:
	case <-d.handling.Done():
		rest := time.NewTimer(d.cfg.DrainTimeout / 10)
		defer rest.Stop()
		select {
		case <-d.quiet:
		case <-rest.C:
		}
	}

	d.mu.Lock()
	d.closed = true
	failed := DrainError{Name: d.cfg.Name}
	for _, dom := range d.domains {
		if dom.timer != nil {
			dom.timer.Stop()
		}
		if dom.state == working || dom.stage == ended {
			failed.Abandoned++
		}
	}
	d.mu.Unlock()

	ctx, cancel := context.WithTimeout(d.hard, d.cfg.DrainTimeout)
	defer cancel()
	lost := lostIn(context.Cause(d.soft))
	if lost == nil {
		failed.Commit = d.commit(ctx)
		lost = lostIn(failed.Commit)
	} else {
		failed.Commit = lost
	}
	d.giveBack(ctx)
	d.observe(Event{Kind: Drained, Offset: d.Stats().Floor, Count: failed.Abandoned, Err: failed.Commit})
	switch {
	case failed.Abandoned > 0, lost == nil && failed.Commit != nil:
		return &failed
	case lost != nil:
		return lost
	}
	return nil
}

// endIfLost ends the Run if err is a *LostError, and reports whether it is.
func (d *Dispatcher) endIfLost(err error) bool {
	lost := lostIn(err)
	if lost != nil {
		d.lose(lost)
	}
	return lost != nil
}

// lostIn returns the *LostError that err is, or nil.
func lostIn(err error) *LostError {
	var lost *LostError
	errors.As(err, &lost)
	return lost
}

// giveBack releases the leases that the drain leaves, so that the next owner finds nobody dead and counts nothing. A suspect that has not had
// its run stays one.
func (d *Dispatcher) giveBack(ctx context.Context) {
	d.mu.Lock()
	var left []lease.Lease
	for _, dom := range d.domains {
		if dom.ours != 0 {
			left = append(left, lease.Lease{Domain: dom.name, Offset: dom.at, Token: dom.ours})
		}
	}
	d.mu.Unlock()
	for _, l := range left {
		d.releaseLease(ctx, l)
	}
}

// closeIfQuiet closes quiet once the drain has nothing left to wait for. The lock is held.
func (d *Dispatcher) closeIfQuiet() {
	if !d.draining || d.active > 0 {
		return
	}
	for _, dom := range d.domains {
		if dom.stage == ended {
			return
		}
	}
	select {
	case <-d.quiet:
	default:
		close(d.quiet)
	}
}

// makeRunnable makes an idle domain ready if it can go on, and forgets it if there is nothing to remember. The lock is held.
func (d *Dispatcher) makeRunnable(dom *domain) {
	if dom.state != idle {
		return
	}
	if d.draining && dom.stage != ended {
		return
	}
	switch dom.stage {
	case fresh:
		if len(dom.queue) == 0 && !(dom.open && d.lost(dom, dom.at)) {
			if dom.empty() {
				d.forget(dom)
			} else {
				d.attend(dom)
			}
			return
		}
	case missing:
		if dom.dead() || dom.early() {
			break
		}
		if dom.find(dom.at) < 0 && !d.lost(dom, dom.at) {
			d.attend(dom)
			return
		}
		dom.stage = leased
		if d.pause(dom, time.Until(dom.due)) {
			return
		}
	case leased, ended, givenUp, fenced:
	}
	dom.of.push(dom)
	d.requestSlot(dom.of)
}

// lost: the record was not there when its offset was read, and will not come. The lock is held.
func (d *Dispatcher) lost(dom *domain, offset int64) bool {
	return offset < d.high && !(dom.behind && offset >= dom.mark) && !(dom.of.behind && offset >= dom.of.mark)
}

// pause makes an idle domain ready after wait, if that is in the future. The lock is held.
func (d *Dispatcher) pause(dom *domain, wait time.Duration) bool {
	if wait <= 0 || d.draining && dom.stage != ended {
		return false
	}
	dom.state = pausing
	dom.timer = time.AfterFunc(wait, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if dom.state == pausing && !d.closed {
			dom.state = idle
			d.makeRunnable(dom)
		}
	})
	return true
}

// beginTrial begins the trial that was waited for, of any partition's suspects. It came from hand to hand, or the partition that has just had one would have the
// next as well.
func (d *Dispatcher) beginTrial() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.trialElsewhere, d.granted = false, true
	if d.draining || !d.hasReadySuspect() {
		d.returnTrial()
	}
	d.requestForSuspects()
}

// returnTrial gives a trial back that has not begun. The lock is held.
func (d *Dispatcher) returnTrial() {
	if d.granted {
		d.granted = false
		d.trials.give(1)
	}
}

// hasReadySuspect reports whether a suspect is ready to run. The lock is held.
func (d *Dispatcher) hasReadySuspect() bool {
	for _, o := range d.owners {
		if len(o.suspects) > 0 {
			return true
		}
	}
	return false
}

// clearSuspect ends dom's trial, if it has one, so that the next suspect's can begin.
func (d *Dispatcher) clearSuspect(dom *domain) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.endTrial(dom)
}

// endTrial ends dom's trial if it is on one. The lock is held.
func (d *Dispatcher) endTrial(dom *domain) {
	if d.trial == dom {
		d.trial = nil
		d.trials.give(1)
		d.requestForSuspects()
	}
}

// work advances one domain after the other while it is this partition's turn.
func (d *Dispatcher) work(dom *domain) {
	for dom != nil {
		line, began := dom.of.line, time.Now()
		var wait, own, all time.Duration
		if dom.asks {
			own, all = d.pace(dom)
		}
		rejected := own > 0 || all > 0
		if !rejected {
			line.answered(false, 0)
			wait = d.advance(dom)
		}
		used := time.Since(began)
		d.mu.Lock()
		dom.state, dom.paced = idle, own > 0
		d.endTrial(dom)
		switch {
		case d.closed:
			d.emptyLines()
		case !d.pause(dom, max(wait, own)):
			d.makeRunnable(dom)
		}
		if rejected {
			line.answered(true, all)
			used = 0
		}
		if dom = d.use(line.give(used)); dom == nil {
			d.active--
			d.closeIfQuiet()
		}
		d.mu.Unlock()
	}
}
