// SPDX-License-Identifier: Apache-2.0

// Slow clients: how long they may keep a handler waiting, for a body that trickles in or for an answer that they read slowly.

package wardenhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/stopbank/stopbank/warden/internal/patience"
)

// ErrSlowPeer is the error of a handler's Read and Write after its client was slower than [Config.MinRate] for longer than
// [Config.Grace]. errors.Is(err, os.ErrDeadlineExceeded) holds as well. [WriteError] answers it with 408.
var ErrSlowPeer = errors.New("wardenhttp: the client is too slow")

func slowPeer() problem { return problem{status: http.StatusRequestTimeout, reason: "slow_client"} }

// pace is the minimum pace of a client.
type pace struct {
	grace time.Duration
	rate  int // bytes a second
}

// chunk is the size, in bytes, of one write: what fits into the grace at the minimum rate, 4 KiB to 1 MiB.
func (p pace) chunk() int { return int(min(max(p.grace.Seconds()*float64(p.rate), 4<<10), 1<<20)) }

// earned is the time that n bytes earn, up to the grace.
func (p pace) earned(n int64) time.Duration {
	return time.Duration(min(float64(n)/float64(p.rate), p.grace.Seconds()) * float64(time.Second))
}

// noticeable is how long a wait for the client is one that the monitor has to know of.
const noticeable = 25 * time.Millisecond

// recheck is how often it is looked whether others need the slot of a client whose budget is used up.
const recheck = 250 * time.Millisecond

// A direction is the request's body, nil if there is none, or its answer, with a time budget that starts at the grace, its maximum:
// waiting in Read or Write spends it, and each byte transferred earns some back. When the budget is used up during a wait and others
// need the slot, a deadline in the past ends the wait. A handler that computes, and an event stream without events, spend nothing.
type direction struct {
	e *exchange

	mu     sync.Mutex // guards all below; never held while waiting for the client
	budget time.Duration
	first  time.Duration // when a wait began first, since the request came; 0: none did
	began  time.Time     // of the wait
	timer  *time.Timer
	status int           // of the answer
	bytes  int64         // transferred
	away   time.Duration // of all waits
	lately patience.Recent
	err    error       // the error of every later wait
	unhook func() bool // from the request's context; nil: it is not watched

	bounded         bool // the end of the request's context ends the waits too
	waiting         bool // a Read or Write is waiting for the client,
	noticed         bool // and the monitor knows
	handlerDeadline bool // the handler sets the deadlines
	used            bool // data was read or written
	tooLate         bool // the answer began when its client had left
	shut            bool // whoever reads the body has closed it
	eof             bool // the body was read to its end
	broken          bool // the client sent what is no body, or stopped in the middle of it
	closed          bool // the handler is done, and its ResponseWriter must not be touched
	cut             bool // a deadline has ended a wait
	reads           bool // it is the body's, from the beginning
}

// beginWait starts a wait for the client.
func (s *direction) beginWait() (began time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.useLocked()
	s.lookLocked()
	if s.err != nil {
		return began, s.err
	}
	if s.shut {
		return began, http.ErrBodyReadAfterClose
	}
	began = time.Now()
	s.e.slot.Time.Wait(began)
	age := max(began.Sub(s.e.arrived), 1)
	s.lately.Note(age, s.away)
	if s.waiting, s.began = true, began; s.first == 0 {
		s.first = age
	}
	first := min(noticeable, s.budget)
	if s.timer == nil {
		s.timer = time.AfterFunc(first, s.expire)
	} else {
		s.timer.Reset(first)
	}
	return began, nil
}

// endWait ends a wait in which n bytes were transferred, and returns its error.
func (s *direction) endWait(began time.Time, n int64, err error) error {
	if began.IsZero() {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	took := time.Since(began) // which takes half the time of time.Now
	s.e.slot.Time.Resume(began.Add(took), err == nil && !s.reads)
	s.away += took
	s.waiting = false
	if s.noticed {
		s.noticed = false
		s.e.slot.Resume()
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	s.bytes += n
	pace := s.e.m.pace
	s.budget = min(pace.grace, max(0, s.budget-took)+pace.earned(n))
	if err == nil {
		return nil
	}
	s.eof = s.eof || errors.Is(err, io.EOF)
	s.broken = s.broken || !s.eof && s.err == nil && !errors.Is(err, http.ErrBodyReadAfterClose) &&
		!(s.handlerDeadline && errors.Is(err, os.ErrDeadlineExceeded))
	if !s.eof && s.err != nil {
		return s.err
	}
	return err
}

// notice tells the monitor of a wait that is no short one, once, and reports whether the budget is used up.
func (s *direction) notice() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.err != nil || !s.waiting || s.closed {
		return false
	}
	if !s.noticed && now.Sub(s.began) >= noticeable {
		s.noticed = true
		s.e.slot.Await()
		if ctx := s.e.slot.Ctx; s.bounded && s.unhook == nil {
			s.unhook = context.AfterFunc(ctx, func() { s.stop(ctx.Err()) })
		}
	}
	left := s.budget - now.Sub(s.began)
	if left > 0 && !s.handlerDeadline {
		s.timer.Reset(left)
	}
	return left <= 0
}

// expire is the timer's function.
func (s *direction) expire() {
	if !s.notice() {
		return
	}
	impatient := s.e.impatient() // before the mutex: it takes the limiter's
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.handlerDeadline || !s.waiting || time.Since(s.began) < s.budget {
		return
	}
	if !impatient {
		s.timer.Reset(recheck)
		return
	}
	s.err = fmt.Errorf("%w: %w", ErrSlowPeer, os.ErrDeadlineExceeded)
	_ = s.cutLocked()
	if !s.reads && s.e.drains { // the first part of the answer waits for the rest of the body
		_ = http.NewResponseController(s.e.ResponseWriter).SetReadDeadline(time.Unix(1, 0))
	}
}

// stop ends waiting for the client, now and later. A body for which nobody waits is left alone: over HTTP/1, net/http reads ahead once
// somebody has read the body to its end, perhaps an outer handler, and takes a deadline that passes for a client that has left, so that
// this request and all later ones of the connection are canceled. It reports whether a wait that goes on ends soon: not where
// deadlines are not supported.
func (s *direction) stop(why error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed && s.stopLocked(why)
}

func (s *direction) stopLocked(why error) bool {
	if s.err == nil {
		s.err = why
	}
	return s.eof || s.reads && !s.waiting || s.cutLocked() == nil
}

// cutLocked ends a pending Read or Write. A Read may have met the end of the body just before: see [exchange.closeUnread].
func (s *direction) cutLocked() error {
	s.cut = true
	return s.setDeadlineLocked(time.Unix(1, 0))
}

// lookLocked stops if the request's context has ended.
func (s *direction) lookLocked() {
	if !s.bounded || s.closed {
		return
	}
	if over := s.e.slot.Ctx.Err(); over != nil {
		s.stopLocked(over)
	}
}

// unwatch is lookLocked for the last time: call it before releasing the slot, which ends the context.
func (s *direction) unwatch() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookLocked()
	if s.bounded = false; s.unhook != nil {
		s.unhook()
	}
}

// refuse makes every later wait fail.
func (s *direction) refuse(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = why
	}
}

// close is stop for a handler that is done: the ResponseWriter must not be used afterwards. Waits on other goroutines are
// ended. net/http's remaining I/O gets the deadline due; zero: none.
func (s *direction) close(due time.Time) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
	switch {
	case s.handlerDeadline || s.cut || s.eof:
	case s.waiting:
		_ = s.cutLocked()
	case !due.IsZero() && (s.used || s.reads):
		_ = s.setDeadlineLocked(due)
	}
	if s.closed = true; s.err == nil {
		s.err = io.ErrClosedPipe
	}
}

// setHandlerDeadline lets the handler set the deadlines itself.
func (s *direction) setHandlerDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.err
	}
	s.handlerDeadline = true
	return s.setDeadlineLocked(t)
}

// setAnswered records that there is an answer, with this status.
func (s *direction) setAnswered(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.useLocked()
	s.status = cmp.Or(s.status, status)
}

// useLocked records that data is read or written.
func (s *direction) useLocked() {
	if !s.used && !s.reads {
		s.tooLate = errors.Is(s.e.slot.Ctx.Err(), context.Canceled)
	}
	s.used = true
}

// answer returns the status of the answer, 0 if there is none, and whether it began when its client had left.
func (s *direction) answer() (status int, tooLate bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used {
		status = cmp.Or(s.status, http.StatusOK)
	}
	return status, s.tooLate
}

// progress returns how much was transferred, and whether that is the whole body.
func (s *direction) progress() (bytes int64, eof bool) {
	if s == nil {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes, s.eof
}

// waited returns how long all waits have taken. (Waits for body and answer at a time, over HTTP/2, count twice.)
func (s *direction) waited() time.Duration {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away
}

// shutDown makes every later wait fail. It ends none: over HTTP/1 that would end the request.
func (s *direction) shutDown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut = true
}

// clientFault reports whether the client broke off, or was cut off because it was too slow.
func (s *direction) clientFault() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken || errors.Is(s.err, ErrSlowPeer)
}

// waits returns all waits by now.
func (s *direction) waits(now time.Time) (w patience.Waits) {
	if s == nil {
		return w
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Took, w.Whole = s.away, s.eof
	if s.waiting {
		w.Took += now.Sub(s.began)
	}
	if s.first > 0 {
		w.First = s.e.arrived.Add(s.first)
	}
	w.Lately = s.lately.Most(now.Sub(s.e.arrived), w.Took)
	return w
}

// isCut reports whether a deadline has ended a wait.
func (s *direction) isCut() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cut
}

func (s *direction) state() (used bool, err error) {
	if s == nil {
		return false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used, s.err
}

// setDeadlineLocked ends a pending Read or Write, over HTTP/1 and HTTP/2. Where deadlines are not supported, the next call fails
// instead.
func (s *direction) setDeadlineLocked(t time.Time) error {
	rc := http.NewResponseController(s.e.ResponseWriter)
	if s.reads {
		return rc.SetReadDeadline(t)
	}
	return rc.SetWriteDeadline(t)
}
