// The counters of a compartment with its tenants. Set.mu guards them, and each is updated in the step that decides, so none
// ever falls.

package bulkhead

import (
	"errors"

	"github.com/stopbank/stopbank/warden/internal/queue"
	"github.com/stopbank/stopbank/warden/limiter"
)

// left reports whether a rejection for this reason counts as leaving (the call had waited or was late) rather than as
// rejected on arrival.
func left(r limiter.Reason) bool {
	switch r {
	case limiter.MaxWaitExceeded, limiter.DeadlineExceeded, limiter.TimeoutQueued, limiter.Canceled, limiter.PriorityDrop, limiter.Closed:
		return true
	}
	return false
}

// reasonOf maps the queue's reason for dropping.
func reasonOf(v queue.Result) limiter.Reason {
	return [queue.Results]limiter.Reason{
		queue.Shed: limiter.PressureHigh, queue.ShedInPart: limiter.ProbabilisticShedding, queue.Full: limiter.QueueOverflow,
		queue.Overstayed: limiter.MaxWaitExceeded, queue.Late: limiter.DeadlineExceeded, queue.Gone: limiter.Canceled,
	}[v]
}

type counts struct {
	submitted, admitted, finished                uint64
	outcomes                                     [Rejected]uint64
	rejectedFor, wouldReject                     [limiter.Reentry + 1]uint64
	rejected                                     uint64 // for any reason but Canceled and Reentry
	abandoned, latePanics                        uint64
	degraded, fallbacksFailed, fallbacksRejected uint64
	abandonedNow, fallbacks                      int
}

// countRejection counts the rejection of a submitted call. The caller holds Set.mu.
func (p *pool) countRejection(why limiter.Reason) {
	p.counts.rejectedFor[why]++
	if why != limiter.Canceled && why != limiter.Reentry {
		p.window.at(p.set.clock(), &p.counts)
		p.counts.rejected++
	}
}

// countEarlyRejection counts a call that is rejected before it has asked for a slot.
func (p *pool) countEarlyRejection(why limiter.Reason) {
	p.set.mu.Lock()
	defer p.set.mu.Unlock()
	p.counts.submitted++
	p.countRejection(why)
}

// arrivals returns the number of calls so far.
func (s *Set) arrivals() (n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pools {
		n += p.counts.submitted
	}
	return n
}

// reasonFor returns the reason for which Do rejected a call.
func reasonFor(err error) limiter.Reason {
	var timeout *TimeoutError
	var r *limiter.Rejection
	switch {
	case errors.As(err, &timeout):
		return limiter.TimeoutQueued
	case errors.As(err, &r):
		return r.Reason
	case errors.Is(err, ErrBreakerOpen):
		return limiter.BreakerOpen
	}
	return limiter.Reentry
}
