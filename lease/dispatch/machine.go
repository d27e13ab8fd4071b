// SPDX-License-Identifier: Apache-2.0

package dispatch

// This file is the life of a domain as one machine: what a call answered goes in, and the next step comes out.

import (
	"errors"
	"slices"
	"time"

	"github.com/stopbank/stopbank/lease"
)

// machine is the life of one domain. It holds no lock, makes no call and reads no clock: next says which call comes next, learn
// takes in what it answered, and a moment tells both of them the time and what is known of the partition. Around it, the
// dispatcher has the lock, the goroutines and the slots, makes the calls, and waits.
//
// Every state is one step that is to be taken. "again" stands for the same step after a pause.
//
//	state       step                           answer: next state
//	open        a dead letter is first:
//	              deliver                      accepted: open     failed: again
//	            below what the ledger has:
//	              offer                        open               error: again
//	            otherwise:
//	              acquireNext, tryAcquire      acquired: leased   done before: open   leased already: contended   error: again
//	contended   inspect                        leased: open during Grace, then confirming   not leased: open   error: again
//	confirming  confirm                        ours: claiming     error: again
//	claiming    reclaim                        leased, of a released lease releasing        error: open
//	leased      deliver, offer                 as in open
//	            if released: reclaim           leased             fenced: open              error: again
//	            if suspect: fail               leased             no retry left: givenUp    fenced: fenced   error: again
//	            handle                         ended              Later, or a trial that failed: releasing
//	ended       succeed                        done: open         done before: succeeded    fenced: fenced   error: again
//	            fail, giveUp                   retry: releasing   no retry left: givenUp    fenced: fenced   error: again
//	                                           done before: succeeded                       given up before: failed
//	            cut off by the drain: release  leased
//	releasing   release                        leased
//	succeeded   inspect                        open               error: again
//	failed      inspect                        givenUp            error: again
//	givenUp     deliver                        accepted: open     failed: again
//	fenced      confirm                        ours: open         error: again
//
// Nothing is to be done while no record is there (open), or the leased one is still to be read (leased). Where unsure, a fail is
// preceded by an inspect. In a drain only those steps are taken that end what has begun.
type machine struct {
	queue  []item // fetched and not done, offsets rising
	room   int    // of MaxBuffered, for the queue
	ledger mark   // where the ledger has work: a lease, the head of its backlog, a record given up. The floor must not pass it
	current
}

// current is the record in work, and the step that is to be taken for it. It begins anew with each lease: what outlives one is in
// machine.
type current struct {
	state        state
	tenure       tenure
	lease        lease.Lease
	began        time.Time   // the handler, last
	err          error       // of the handler; while contended, why the ledger rejected the record
	backlog      mark        // after a give-up: what the ledger has next
	due          time.Time   // of the next attempt (D7)
	until        time.Time   // no step is taken before
	errorsInRow  int         // of the ledger, the source, DeadLetter, a rate
	unsure       bool        // the last call failed, and may have been carried out
	foreign      lease.Token // another process's lease, which has Grace; 0: none
	foreignSince time.Time
}

type state uint8

const (
	open       state = iota // no lease: take the next record
	contended               // there is a lease already: whose?
	confirming              // another's, to be reclaimed: does this process own the partition?
	claiming                // it does: reclaim the lease
	leased                  // run the handler
	ended                   // the handler has returned: report it
	releasing               // the record waits for its next attempt: release its lease until then
	succeeded               // done, by a call whose reply was lost or by the handler: what waits in the ledger?
	failed                  // given up, by a call whose reply was lost: what waits in the ledger?
	givenUp                 // deliver the dead letter
	fenced                  // another process has taken the lease: does this one own the partition?
)

// tenure is how the lease is held.
type tenure uint8

const (
	held     tenure = iota
	suspect         // reclaimed from a process that may have died of the record, whose attempt is counted before it begins
	counted         // as suspect; it has been counted
	released        // until the next attempt
	taken           // while open: it was released, and then taken by a process that may own the partition next
)

// call is one call of the ledger, the source, the handler or DeadLetter.
type call uint8

const (
	nothing call = iota
	offer
	tryAcquire
	acquireNext
	inspect
	confirm
	reclaim
	release
	fail
	giveUp
	succeed
	handle
	deliver
)

// step is what a domain does next. Without a call it waits: for so long, or until something arrives.
type step struct {
	call    call
	attempt bool // it is part of an attempt, which needs an admission and a rate
	wait    time.Duration
	record  Record
	lease   lease.Lease
	err     error // of deliver, why the record was given up; of handle, that there is no record
}

// answer is what a call answered.
type answer struct {
	err     error
	status  lease.Status
	lease   lease.Lease
	retries int
	head    mark // of the backlog
	began   time.Time
}

// moment is what a machine cannot know by itself.
type moment struct {
	cfg      *Config
	now      time.Time
	random   float64 // in [0, 1)
	read     int64   // every record of the domain below was read: it is queued, or done, or lost
	draining bool    // nothing new begins
	cut      bool    // the drain has ended the handlers' context: an error after that is no failure
}

// item is a record that was fetched and is not done.
type item struct {
	Record
	room  int       // of MaxBuffered
	since time.Time // when it was fetched
	known known
	cause error // why a dead item never reached the ledger; nil otherwise
}

// known is what the ledger has said of a record that is queued.
type known uint8

const (
	unknown known = iota
	waiting       // it is in the backlog
	dead          // it was given up before a restart: only its dead letter remains
)

// next returns the next step. It changes nothing.
func (m *machine) next(now moment) step {
	switch wait := m.until.Sub(now.now); {
	case now.draining && !m.finishes():
		return step{}
	case wait > 0:
		return step{wait: wait}
	}
	switch m.state {
	case contended:
		return step{call: inspect, attempt: true}
	case confirming:
		return step{call: confirm, attempt: true}
	case claiming:
		return step{call: reclaim, attempt: true, lease: m.lease}
	case ended:
		return m.report(now)
	case releasing:
		return step{call: release, lease: m.lease}
	case succeeded, failed:
		return step{call: inspect}
	case givenUp:
		record, _ := m.record()
		return step{call: deliver, record: record, lease: m.lease, err: m.err}
	case fenced:
		return step{call: confirm}
	}
	return m.begin(now)
}

// finishes reports whether the next step ends something that has begun, which is done in a drain too.
func (m *machine) finishes() bool {
	switch m.state {
	case ended, releasing, succeeded, failed:
		return true
	case leased:
		return m.tenure == counted
	case givenUp:
		return m.errorsInRow == 0
	}
	return false
}

// begin returns the next step of a domain without a running attempt: what is left of earlier records, a lease, or the attempt.
func (m *machine) begin(now moment) step {
	var first item
	if len(m.queue) > 0 {
		first = m.queue[0]
	}
	switch {
	case first.known == dead:
		return step{call: deliver, record: first.Record, err: first.cause}
	case len(m.queue) > 0 && m.ledger.set && first.Offset < m.ledger.offset && first.known == unknown:
		return step{call: offer, record: first.Record}
	case m.state == open && m.ledger.set && (len(m.queue) > 0 || m.ledger.offset < now.read):
		return step{call: acquireNext, attempt: true}
	case m.state == open && len(m.queue) > 0:
		return step{call: tryAcquire, attempt: true, record: first.Record}
	case m.state == open:
		return step{}
	}
	record, here := m.record()
	switch {
	case !here && m.lease.Offset >= now.read:
		return step{}
	case m.due.After(now.now):
		return step{wait: m.due.Sub(now.now)}
	case m.tenure == released:
		return step{call: reclaim, attempt: true, lease: m.lease}
	case m.tenure == suspect && m.unsure:
		return step{call: inspect, attempt: true}
	case m.tenure == suspect:
		return step{call: fail, attempt: true, lease: m.lease}
	}
	s := step{call: handle, attempt: true, record: record, lease: m.lease}
	if !here {
		s.err = ErrRecordGone
	}
	return s
}

// report returns the call that tells the ledger how an attempt has ended.
func (m *machine) report(now moment) step {
	s := step{call: fail, lease: m.lease}
	switch {
	case m.err == nil:
		s.call = succeed
	case now.cut:
		s.call = release
	case errors.Is(m.err, ErrPermanent):
		s.call = giveUp
	case m.unsure:
		s.call = inspect
	}
	return s
}

// learn takes in what s answered. It returns the event to be observed, if its Kind is set, and whether the domain goes on at
// once; otherwise it gives its slot back first.
func (m *machine) learn(now moment, s step, a answer) (e Event, on bool) {
	switch s.call {
	case offer:
		if a.err != nil {
			return m.backOff(now, a.err), false
		}
		m.errorsInRow = 0
		return m.know(a.status), false
	case tryAcquire, acquireNext:
		return m.acquired(now, s, a)
	case inspect:
		return m.inspected(now, a)
	case confirm:
		return m.confirmed(now, a)
	case reclaim:
		return m.reclaimed(now, a)
	case release:
		m.state, m.tenure = leased, released
		if a.err != nil && !isFence(a.err) { // not repeated: if this process dies meanwhile, the record becomes a suspect
			e = m.event(Event{Kind: LedgerError, Err: a.err})
		}
		return e, false
	case fail, giveUp:
		return m.failed(now, a)
	case succeed:
		if a.err != nil {
			return m.refused(now, a.err)
		}
		return m.succeeded(now, a.head), false
	case handle:
		return m.handled(now, a)
	case deliver:
		return m.delivered(now, s, a), false
	}
	return Event{}, false
}

// acquired takes in a call for the lease on the next record.
func (m *machine) acquired(now moment, s step, a answer) (e Event, on bool) {
	if a.err != nil {
		return m.rejected(now, s, a.err)
	}
	switch a.status {
	case lease.Busy, lease.Enqueued, lease.AlreadyAcquired:
		m.state = contended
		return Event{}, true
	case lease.NothingToDo:
		m.ledger = mark{}
	case lease.AlreadyProcessed, lease.AlreadyFailed:
		e = m.know(a.status)
	}
	m.current = current{}
	if a.status == lease.Acquired {
		m.hold(a.lease)
	}
	return e, true
}

// rejected takes in an error of a call for a lease.
func (m *machine) rejected(now moment, s step, err error) (e Event, on bool) {
	disordered := (*lease.BacklogOrderingError)(nil)
	switch {
	case errors.As(err, &disordered): // the ledger has earlier records of the domain
		m.ledger = mark{true, disordered.Expected}
	case errors.Is(err, lease.ErrInvalid) && s.call == tryAcquire: // no ledger will ever accept the record
		m.queue[0].known, m.queue[0].cause = dead, err
	case errors.Is(err, lease.ErrBacklogFull): // behind a lease of another process; or the ledger's entry of the domain is full
		m.state, m.err = contended, err
		return Event{}, true
	default:
		m.unsure = true
		e = m.backOff(now, err)
	}
	return e, false
}

// know takes in how the ledger knows the queue's first record.
func (m *machine) know(status lease.Status) (e Event) {
	first := &m.queue[0]
	switch status {
	case lease.AlreadyProcessed:
		e = Event{Kind: Skipped, Offset: first.Offset}
		m.drop(first.Offset)
	case lease.AlreadyFailed:
		first.known = dead
	default:
		first.known = waiting
	}
	return e
}

// hold makes l the lease that is worked under.
func (m *machine) hold(l lease.Lease) {
	m.state, m.tenure, m.lease, m.unsure, m.errorsInRow = leased, held, l, false, 0
	m.ledger = mark{true, l.Offset}
}

// inspected takes in the ledger's view of the domain.
func (m *machine) inspected(now moment, a answer) (e Event, on bool) {
	switch {
	case a.err != nil:
		return m.backOff(now, a.err), false
	case m.state == contended:
		return m.found(now, a.lease)
	case m.state == succeeded:
		return m.succeeded(now, a.head), false
	case m.state == failed:
		return m.spent(now, m.lease.RetryCount, a.head)
	}
	m.unsure = false
	if a.lease.Token == m.lease.Token && a.lease.RetryCount > m.lease.RetryCount { // it was counted
		return m.failed(now, answer{status: lease.RetryScheduled, retries: a.lease.RetryCount})
	}
	return Event{}, true
}

// found takes in a lease that another call has taken. If the reply of an earlier call was lost, the lease is this process's own.
// Otherwise it was taken by a process that has not yet noticed its loss of the partition, and that gets Grace to finish. It is
// reclaimed only if the source confirms, after it was read, that this process owns the partition.
func (m *machine) found(now moment, l lease.Lease) (e Event, on bool) {
	cause := m.err
	m.state, m.err = open, nil
	switch {
	case l.Token == 0 && cause != nil:
		return m.backOff(now, cause), false
	case l.Token == 0:
		return Event{}, false
	}
	if free := l.Released && m.tenure != taken; !free && !m.unsure {
		if m.foreign != l.Token {
			m.foreign, m.foreignSince, m.errorsInRow = l.Token, now.now, 0
			e = Event{Kind: Foreign, Offset: l.Offset, Token: l.Token}
		}
		if grace := m.foreignSince.Add(now.cfg.Grace).Sub(now.now); grace > 0 {
			m.until = now.now.Add(min(m.errorPause(now), grace))
			return e, false
		}
	}
	m.state, m.lease = confirming, l
	return e, true
}

// confirmed takes in the source's word on whether this process owns the partition. If it does not, the Run ends.
func (m *machine) confirmed(now moment, a answer) (e Event, on bool) {
	switch {
	case a.err != nil:
		m.until = now.now.Add(max(m.errorPause(now), 1))
		return Event{}, false
	case m.state == confirming:
		m.state = claiming
		return Event{}, true
	}
	m.current = current{} // a former owner has taken the lease: begin anew
	return Event{}, false
}

// reclaimed takes in the new token of a lease.
func (m *machine) reclaimed(now moment, a answer) (e Event, on bool) {
	switch {
	case a.err == nil && (m.state == leased || m.unsure): // its own
		m.hold(a.lease)
		return Event{}, true
	case a.err == nil:
		return m.takeOver(now, m.lease.Released, a.lease)
	case m.state == claiming:
		e = m.backOff(now, a.err)
		m.state, m.lease = open, lease.Lease{}
		return e, false
	case isFence(a.err):
		// That does not show which process owns the partition: any process may take a released lease, and a reply may have been
		// lost. Who took it is left alone for Grace, also if it releases the lease: it may be the new owner.
		m.current = current{tenure: taken, unsure: m.unsure}
		return Event{}, true
	}
	m.unsure = true
	return m.backOff(now, a.err), false
}

// takeOver makes the lease of a former holder, reclaimed as l, the one that is worked under. A released one continues where it
// was. Of any other the holder may have died, and the record becomes a suspect. No attempt is counted.
func (m *machine) takeOver(now moment, wasReleased bool, l lease.Lease) (e Event, on bool) {
	m.current = current{}
	m.hold(l)
	retry := l.RetryCount
	if wasReleased {
		m.state = releasing // so that it does not become a suspect if this process dies before the record is due
	} else {
		m.tenure = suspect
		retry++
	}
	m.due = now.now.Add(now.cfg.resume(now, l.AcquiredAt, retry))
	return m.event(Event{Kind: Reclaimed, RetryCount: l.RetryCount}), wasReleased
}

// handled takes in how the handler returned.
func (m *machine) handled(now moment, a answer) (e Event, on bool) {
	trial := m.tenure == counted
	m.state, m.tenure, m.err, m.began = ended, held, a.err, a.began
	if a.err == nil || now.cut {
		return Event{}, true
	}
	postponed := (*later)(nil)
	switch {
	case errors.As(a.err, &postponed):
		wait := min(postponed.wait, maxPause)
		if wait <= 0 {
			wait = now.cfg.Backoff
		}
		m.state, m.due = releasing, now.now.Add(wait)
		return m.event(Event{Kind: Postponed, RetryCount: m.lease.RetryCount, Wait: wait, Took: now.now.Sub(m.began)}), true
	case trial && !errors.Is(a.err, ErrPermanent):
		return m.retry(now, m.lease.RetryCount), true
	}
	return Event{}, true
}

// failed takes in a failure that was counted: of a suspect before its attempt, of any other record after it.
func (m *machine) failed(now moment, a answer) (e Event, on bool) {
	trial := m.state == leased
	if trial {
		m.err, m.began = ErrDied, now.now
	}
	if a.err != nil {
		return m.refused(now, a.err)
	}
	m.unsure, m.errorsInRow = false, 0
	switch {
	case a.status != lease.RetryScheduled:
		return m.spent(now, a.retries, a.head)
	case trial:
		m.tenure, m.lease.RetryCount = counted, a.retries
		return Event{}, true
	}
	return m.retry(now, a.retries), true
}

// refused takes in a report that the ledger did not accept.
func (m *machine) refused(now moment, err error) (e Event, on bool) {
	ended := (*lease.LeaseNotFoundError)(nil)
	switch errors.As(err, &ended); {
	case ended != nil && ended.Status == lease.AlreadyFailed && m.err != nil:
		m.state = failed
		return Event{}, true
	case ended != nil && ended.Status == lease.AlreadyProcessed && m.state != leased:
		// The reply was lost, or the handler ended the lease in its own transaction, whatever error it received from that.
		m.state = succeeded
		return Event{}, true
	case isFence(err):
		return m.lose(err)
	}
	m.unsure = true
	return m.backOff(now, err), false
}

// retry schedules the next attempt, the nth retry.
func (m *machine) retry(now moment, n int) Event {
	wait := now.cfg.pause(n, now.random)
	m.state, m.lease.RetryCount, m.due = releasing, n, now.now.Add(wait)
	return m.event(Event{Kind: Retrying, RetryCount: n, Err: m.err, Wait: wait, Took: now.now.Sub(m.began)})
}

// spent marks the record as given up; its dead letter comes next.
func (m *machine) spent(now moment, retries int, backlog mark) (e Event, on bool) {
	m.state, m.tenure, m.errorsInRow, m.backlog = givenUp, held, 0, backlog
	return m.event(Event{Kind: GaveUp, RetryCount: retries, Err: m.err, Took: now.now.Sub(m.began)}), true
}

// succeeded removes the record in work, which is done.
func (m *machine) succeeded(now moment, backlog mark) Event {
	e := m.event(Event{Kind: Succeeded, RetryCount: m.lease.RetryCount, Took: now.now.Sub(m.began)})
	m.finish(backlog)
	return e
}

// delivered takes in how DeadLetter returned. The record is done when it has been accepted.
func (m *machine) delivered(now moment, s step, a answer) Event {
	e := Event{Kind: DeadLettered, Offset: s.record.Offset, Token: s.lease.Token, Err: s.err}
	switch {
	case a.err != nil:
		e.Kind, e.Err, e.Wait = DeadLetterFailed, a.err, max(m.errorPause(now), 1)
		m.until = now.now.Add(e.Wait)
	case m.state == givenUp:
		m.finish(m.backlog)
	default:
		m.drop(s.record.Offset)
		m.errorsInRow = 0
	}
	return e
}

// finish removes the record in work, which is done. backlog is what the ledger has next.
func (m *machine) finish(backlog mark) {
	m.drop(m.lease.Offset)
	m.ledger, m.current = backlog, current{}
}

// lose is called when another process has taken the lease. The domain's records stay queued and hold the floor until the source
// confirms which process owns the partition.
func (m *machine) lose(err error) (e Event, on bool) {
	e = m.event(Event{Kind: Fenced, RetryCount: m.lease.RetryCount, Err: err})
	m.current = current{state: fenced, lease: m.lease}
	return e, true
}

// backOff pauses after a call of the ledger that failed.
func (m *machine) backOff(now moment, err error) Event {
	wait := m.errorPause(now)
	m.until = now.now.Add(wait)
	return m.event(Event{Kind: LedgerError, Err: err, Wait: wait})
}

// errorPause returns the pause after one more error in a row.
func (m *machine) errorPause(now moment) time.Duration {
	m.errorsInRow++
	return now.cfg.errorPause(m.errorsInRow, now.random)
}

// event completes an event about the record under the lease.
func (m *machine) event(e Event) Event {
	e.Offset, e.Token = m.lease.Offset, m.lease.Token
	return e
}

// record returns the leased record, and whether it is here.
func (m *machine) record() (r Record, here bool) {
	if i := m.find(m.lease.Offset); i >= 0 {
		return m.queue[i].Record, true
	}
	return Record{Domain: m.lease.Domain, Offset: m.lease.Offset}, false
}

// holds reports whether a drain has to release the lease. A suspect that has not had its trial stays one.
func (m *machine) holds() bool {
	return (m.state == leased || m.state == ended || m.state == releasing) && (m.tenure == held || m.tenure == counted)
}

// fencedOff reports whether another process has the lease, or may have it.
func (m *machine) fencedOff() bool { return m.foreign != 0 || m.state == fenced }

// low returns the lowest offset that may not be done.
func (m *machine) low() mark {
	if len(m.queue) > 0 {
		return m.ledger.lower(mark{true, m.queue[0].Offset})
	}
	return m.ledger
}

// find returns the index of offset in the queue, or -1.
func (m *machine) find(offset int64) int {
	for i := range m.queue {
		if m.queue[i].Offset == offset {
			return i
		}
	}
	return -1
}

// drop removes offset from the queue, if it is there.
func (m *machine) drop(offset int64) {
	i := m.find(offset)
	if i >= 0 {
		m.room -= m.queue[i].room
	}
	switch {
	case i == 0:
		m.queue[0] = item{}
		m.queue = m.queue[1:]
	case i > 0:
		m.queue = slices.Delete(m.queue, i, i+1)
	}
}

// isFence reports whether the token's lease was taken or completed by another process.
func isFence(err error) bool {
	return errors.Is(err, lease.ErrTokenMismatch) || errors.Is(err, lease.ErrLeaseNotFound)
}
