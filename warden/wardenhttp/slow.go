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

// recheck is how often it is looked whether others need the slot of a client whose budget is used up.
const recheck = 250 * time.Millisecond

// A direction is the request's body or its answer, with a time budget that starts at the grace, its maximum: waiting in Read or
// Write spends it, and each byte transferred earns some back. When the budget is used up during a wait and others need the slot, a
// deadline in the past ends the wait. A handler that computes, and an event stream without events, spend nothing.
type direction struct {
	e     *exchange
	w     http.ResponseWriter // carries the deadlines
	reads bool
	// of the request, to know whether the client was gone when the answer began; nil: not asked for
	client context.Context

	mu              sync.Mutex // guards all below; never held while waiting for the client
	budget          time.Duration
	due             time.Time
	timer           *time.Timer
	waiting         bool          // a Read or Write is waiting for the client
	handlerDeadline bool          // the handler sets the deadlines
	used            bool          // data was read or written
	status          int           // of the answer
	tooLate         bool          // the answer began when its client had left
	bytes           int64         // transferred
	away            time.Duration // of all waits
	eof             bool          // the body was read to its end
	broken          bool          // the client sent what is no body, or stopped in the middle of it
	err             error         // the error of every later wait
	closed          bool          // the handler is done, and w must not be touched
}

// beginWait starts a wait for the client.
func (s *direction) beginWait() (began time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.useLocked()
	if s.err != nil {
		return began, s.err
	}
	began = time.Now()
	s.e.slot.Time.Wait(began)
	if s.handlerDeadline {
		return began, nil
	}
	s.waiting, s.due = true, began.Add(s.budget)
	if s.timer == nil {
		s.timer = time.AfterFunc(s.budget, s.expire)
	} else {
		s.timer.Reset(s.budget)
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
	now := time.Now()
	s.e.slot.Time.Resume(now, err == nil && !s.reads)
	s.away += now.Sub(began)
	s.waiting = false
	if s.timer != nil {
		s.timer.Stop()
	}
	s.bytes += n
	s.eof = s.eof || errors.Is(err, io.EOF)
	s.broken = s.broken || err != nil && !s.eof && s.err == nil && !errors.Is(err, http.ErrBodyReadAfterClose) &&
		!(s.handlerDeadline && errors.Is(err, os.ErrDeadlineExceeded))
	pace := s.e.m.pace
	s.budget = min(pace.grace, max(0, s.budget-now.Sub(began))+pace.earned(n))
	if err != nil && !s.eof && s.err != nil {
		return s.err
	}
	return err
}

// expire is the timer's function.
func (s *direction) expire() {
	impatient := s.e.impatient() // before the mutex: it takes the limiter's
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.handlerDeadline || !s.waiting || time.Now().Before(s.due) {
		return
	}
	if !impatient {
		s.timer.Reset(recheck)
		return
	}
	s.err = fmt.Errorf("%w: %w", ErrSlowPeer, os.ErrDeadlineExceeded)
	_ = s.setDeadlineLocked(time.Unix(1, 0))
}

// stop ends waiting for the client, now and later. A body that was read to its end is left alone: net/http then reads ahead, and
// takes a deadline that passes for a client that has left, so that this request and all later ones of the connection are
// canceled. It reports whether a wait that goes on ends soon: not where deadlines are not supported.
func (s *direction) stop(why error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.err == nil {
		s.err = why
	}
	return s.eof || s.setDeadlineLocked(time.Unix(1, 0)) == nil
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
	switch {
	case s.handlerDeadline || s.err != nil || s.eof:
	case s.waiting:
		_ = s.setDeadlineLocked(time.Unix(1, 0))
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
	if !s.used && s.client != nil {
		s.tooLate = errors.Is(s.client.Err(), context.Canceled)
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

// waited returns how long all waits have taken. (Waits for body and answer at a time, over HTTP/2, count twice.)
func (s *direction) waited() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away
}

// over reports whether the handler is done.
func (s *direction) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// clientFault reports whether the client broke off, or was cut off because it was too slow.
func (s *direction) clientFault() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken || errors.Is(s.err, ErrSlowPeer)
}

func (s *direction) state() (used bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used, s.err
}

// setDeadlineLocked ends a pending Read or Write, over HTTP/1 and HTTP/2. Where deadlines are not supported, the next call fails
// instead.
func (s *direction) setDeadlineLocked(t time.Time) error {
	rc := http.NewResponseController(s.w)
	if s.reads {
		return rc.SetReadDeadline(t)
	}
	return rc.SetWriteDeadline(t)
}
