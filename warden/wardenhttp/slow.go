// Slow clients: how long they may keep a handler waiting, for a body that trickles in or for an answer that trickles out.

package wardenhttp

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// ErrSlowPeer is what Read and Write tell a handler about a client that was slower than [Config.MinRate] for longer than
// [Config.Grace]. errors.Is(err, os.ErrDeadlineExceeded) holds as well. [WriteError] answers it with 408.
var ErrSlowPeer = errors.New("wardenhttp: the client is too slow")

func slowPeer() problem { return problem{status: http.StatusRequestTimeout, reason: "slow_client"} }

// pace is how slow a client may be.
type pace struct {
	grace time.Duration
	rate  int // bytes a second
}

// piece is how much is written at once: no more than comes through in the grace at the least rate.
func (p pace) piece() int { return int(min(max(p.grace.Seconds()*float64(p.rate), 4<<10), 1<<20)) }

// worth is the time for which n bytes pay, up to the grace.
func (p pace) worth(n int64) time.Duration {
	return time.Duration(min(float64(n)/float64(p.rate), p.grace.Seconds()) * float64(time.Second))
}

// A side is one direction of a request. It has spare time, the grace at first and at most: waiting in Read or Write uses it
// up, each byte that passes earns some back. When there is none left while the handler waits, a deadline in the past ends the
// wait. A handler that computes, and an event stream that has nothing to say, cost their client nothing.
type side struct {
	pace  pace
	w     http.ResponseWriter // what has the deadlines
	reads bool

	mu    sync.Mutex // guards all below; whoever holds it does not wait for the client
	spare time.Duration
	due   time.Time
	timer *time.Timer
	waits bool  // for the client, now
	own   bool  // the handler sets the deadlines
	used  bool  // something was read, or written
	whole bool  // the body has come to its end
	late  error // why nothing more is waited for
	over  bool  // the handler is done, and w must not be touched
}

// enter is called before the handler waits for the client.
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

// leave is called when n bytes have passed, or err has happened; it says which it was.
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

// expire is the timer's.
func (s *side) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.late != nil || s.own || !s.waits || time.Now().Before(s.due) {
		return
	}
	s.late = fmt.Errorf("%w: %w", ErrSlowPeer, os.ErrDeadlineExceeded)
	_ = s.setDeadline(time.Unix(1, 0))
}

// stop ends waiting for the client, now and from now on.
func (s *side) stop(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	if s.late == nil {
		s.late = why
	}
	_ = s.setDeadline(time.Unix(1, 0))
}

// end is stop when the handler is done: the ResponseWriter must not be touched any more. Whoever waits all the same, on a goroutine of
// its own, is not waited for. If bounded, what net/http still does gets a deadline.
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

// use notes that there is an answer.
func (s *side) use() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = true
}

func (s *side) state() (used bool, late error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used, s.late
}

// setDeadline ends a Read or Write that hangs, over either protocol. Where deadlines are not supported, the next one fails.
func (s *side) setDeadline(t time.Time) error {
	rc := http.NewResponseController(s.w)
	if s.reads {
		return rc.SetReadDeadline(t)
	}
	return rc.SetWriteDeadline(t)
}
