// Slow clients: how long they may keep a handler waiting, for a body that trickles in or for an answer that they read slowly.

package wardenhttp

import (
	"cmp"
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

// piece is the size, in bytes, of one write: what fits into the grace at the minimum rate, 4 KiB to 1 MiB.
func (p pace) piece() int { return int(min(max(p.grace.Seconds()*float64(p.rate), 4<<10), 1<<20)) }

// worth is the time that n bytes earn, up to the grace.
func (p pace) worth(n int64) time.Duration {
	return time.Duration(min(float64(n)/float64(p.rate), p.grace.Seconds()) * float64(time.Second))
}

// A side is one direction of a request, with a time budget that starts at the grace, its maximum: waiting in Read or Write
// spends it, and each byte transferred earns some back. When the budget is used up during a wait, a deadline in the past ends
// the wait. A handler that computes, and an event stream without events, spend nothing.
type side struct {
	pace  pace
	w     http.ResponseWriter // carries the deadlines
	reads bool

	mu     sync.Mutex // guards all below; never held while waiting for the client
	spare  time.Duration
	due    time.Time
	timer  *time.Timer
	waits  bool  // a Read or Write is waiting for the client
	own    bool  // the handler sets the deadlines
	used   bool  // data was read or written
	status int   // of the answer
	whole  bool  // the body was read to its end
	late   error // the error of every later wait
	over   bool  // the handler is done, and w must not be touched
}

// enter starts a wait for the client.
func (s *side) enter() (began time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = true
	if s.late != nil || s.own {
		return began, s.late
	}
	began = time.Now()
	s.waits, s.due = true, began.Add(s.spare)
	if s.timer == nil {
		s.timer = time.AfterFunc(s.spare, s.expire)
	} else {
		s.timer.Reset(s.spare)
	}
	return began, nil
}

// leave ends a wait in which n bytes were transferred, and returns its error.
func (s *side) leave(began time.Time, n int64, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if began.IsZero() {
		return err
	}
	s.waits = false
	s.timer.Stop()
	s.whole = s.whole || errors.Is(err, io.EOF)
	s.spare = min(s.pace.grace, s.spare-time.Since(began)+s.pace.worth(n))
	if err != nil && !s.whole && s.late != nil {
		return s.late
	}
	return err
}

// expire is the timer's function.
func (s *side) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.late != nil || s.own || !s.waits || time.Now().Before(s.due) {
		return
	}
	s.late = fmt.Errorf("%w: %w", ErrSlowPeer, os.ErrDeadlineExceeded)
	_ = s.setDeadline(time.Unix(1, 0))
}

// stop ends waiting for the client, now and later. A body that was read to its end is left alone: net/http then reads ahead, and
// takes a deadline that passes for a client that has left, so that this request and all later ones of the connection are canceled.
func (s *side) stop(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	if s.late == nil {
		s.late = why
	}
	if !s.whole {
		_ = s.setDeadline(time.Unix(1, 0))
	}
}

// end is stop for a handler that is done: the ResponseWriter must not be used afterwards. Waits on other goroutines are
// ended, not awaited. If bounded, net/http's remaining I/O gets a deadline.
func (s *side) end(bounded bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
	switch {
	case s.own || s.late != nil || s.whole:
	case s.waits:
		_ = s.setDeadline(time.Unix(1, 0))
	case bounded && (s.used || s.reads):
		_ = s.setDeadline(time.Now().Add(s.spare))
	}
	if s.over = true; s.late == nil {
		s.late = io.ErrClosedPipe
	}
}

// hand lets the handler set the deadlines itself.
func (s *side) hand(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return s.late
	}
	s.own = true
	return s.setDeadline(t)
}

// use records that there is an answer, with this status.
func (s *side) use(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used, s.status = true, cmp.Or(s.status, status)
}

// answered returns the status of the answer; 0: there is none.
func (s *side) answered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used {
		return cmp.Or(s.status, http.StatusOK)
	}
	return 0
}

func (s *side) state() (used bool, late error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used, s.late
}

// setDeadline ends a pending Read or Write, over HTTP/1 and HTTP/2. Where deadlines are not supported, the next call fails
// instead.
func (s *side) setDeadline(t time.Time) error {
	rc := http.NewResponseController(s.w)
	if s.reads {
		return rc.SetReadDeadline(t)
	}
	return rc.SetWriteDeadline(t)
}
