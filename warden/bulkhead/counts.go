// What is counted of a compartment with its tenants. All of it is guarded by Set.mu and counted in the step that decides, so
// no counter ever falls.

package bulkhead

import (
	"errors"

	"github.com/stopbank/stopbank/warden/internal/queue"
	"github.com/stopbank/stopbank/warden/limiter"
)

// A reason is one of limiter.Reason, or one that only compartments have.
type reason uint8

const (
	timeoutQueued = reason(limiter.Closed) + 1 + iota
	breakerOpen
	reentry
	reasons
)

// The reasons for a refusal that the limiter does not have, as they are in [Event], in [CompartmentSnapshot] and in logs.
const (
	ReasonTimeoutQueued = "timeout_queued"
	ReasonBreakerOpen   = "breaker_open"
	ReasonReentry       = "reentry"
)

func (r reason) String() string {
	switch r {
	case timeoutQueued:
		return ReasonTimeoutQueued
	case breakerOpen:
		return ReasonBreakerOpen
	case reentry:
		return ReasonReentry
	}
	return limiter.Reason(r).String()
}

// wouldBe is the code, "" for the zero reason.
func (r reason) wouldBe() string {
	if r == 0 {
		return ""
	}
	return r.String()
}

// left is whether those who are refused for this reason leave the queue, or were late, and are not turned away on arrival.
func (r reason) left() bool {
	switch limiter.Reason(r) {
	case limiter.PatienceExceeded, limiter.DeadlineExceeded, limiter.Canceled, limiter.PriorityDrop, limiter.Closed:
		return true
	}
	return r == timeoutQueued
}

// reasonOf names what the queue has decided.
func reasonOf(v queue.Verdict) limiter.Reason {
	return [queue.Verdicts]limiter.Reason{
		queue.Shed: limiter.PressureHigh, queue.ShedInPart: limiter.ProbabilisticShedding, queue.Full: limiter.QueueOverflow,
		queue.Overstayed: limiter.PatienceExceeded, queue.Late: limiter.DeadlineExceeded, queue.Gone: limiter.Canceled,
	}[v]
}

type counts struct {
	submitted, admitted, finished               uint64
	outcomes                                    [Refused]uint64
	refusedFor, wouldReject                     [reasons]uint64
	refused                                     uint64 // for any reason but the caller's cancel and re-entry
	abandoned, latePanics                       uint64
	degraded, fallbacksFailed, fallbacksRefused uint64
	abandonedNow, fallbacks                     int
}

// countRefusal counts a call that was submitted and is refused. The caller holds Set.mu.
func (p *part) countRefusal(why reason) {
	p.counts.refusedFor[why]++
	if why != reason(limiter.Canceled) && why != reentry {
		p.window.at(p.set.clock(), &p.counts)
		p.counts.refused++
	}
}

// refusedFor counts a call that is refused before it has asked for a place.
func (p *part) refusedFor(why reason) {
	p.set.mu.Lock()
	defer p.set.mu.Unlock()
	p.counts.submitted++
	p.countRefusal(why)
}

// arrivals is how many calls there have been.
func (s *Set) arrivals() (n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parts {
		n += p.counts.submitted
	}
	return n
}

// reasonFor names the reason for which Do has refused a call.
func reasonFor(err error) string {
	var timeout *TimeoutError
	var r *limiter.Rejection
	switch {
	case errors.As(err, &timeout):
		return ReasonTimeoutQueued
	case errors.As(err, &r):
		return r.Reason.String()
	case errors.Is(err, ErrBreakerOpen):
		return ReasonBreakerOpen
	}
	return ReasonReentry
}
