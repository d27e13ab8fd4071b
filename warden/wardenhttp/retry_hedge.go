// Hedges: a second attempt, one priority class lower, beside a slow first one; the first answer wins.

package wardenhttp

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/retry"
)

// race is one attempt and its hedge.
type race struct {
	mu     sync.Mutex
	over   bool          // the first attempt has ended: no hedge starts, and a running one does not cancel it
	lost   bool          // the hedge's answer is not needed
	hedged chan struct{} // closed when the hedge has ended; nil: no hedge
	cancel context.CancelCauseFunc
	won    bool

	resp *http.Response // the hedge's result, once hedged is closed
	v    result
	err  error
}

// race sends the request, and a hedge if there is no answer after HedgeAfter. The first attempt runs on this goroutine. Only
// an answer ends the other attempt; a rejection does not.
func (t *retrier) race(req *http.Request, c *call) (*http.Response, result, error) {
	r := &race{}
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(t.cfg.HedgeAfter, func() { t.hedge(r, req, c, cancel) })
	defer timer.Stop() // even if the base or Outcome panics
	defer r.abandon()
	resp, err := t.send(req.WithContext(ctx), cancel)
	v := t.report(req.Context(), c, c.priority, resp, err)

	r.mu.Lock()
	r.over = true
	hedged, won := r.hedged, r.won
	if hedged != nil && !won && v.outcome == retry.Accepted {
		r.lost = true
		r.cancel(errLost)
	}
	lost := r.lost
	r.mu.Unlock()
	if hedged == nil || lost {
		return resp, v, err
	}
	<-hedged // at the latest when the request's context ends
	if won || r.v.outcome == retry.Accepted {
		discard(resp)
		return r.resp, r.v, r.err
	}
	discard(r.resp)
	return resp, v, err
}

// abandon ends the hedge if the first attempt panicked.
func (r *race) abandon() {
	r.mu.Lock()
	over, hedged, resp := r.over, r.hedged != nil, r.resp
	r.over, r.lost = true, r.lost || !over
	r.mu.Unlock()
	if !over && hedged {
		r.cancel(errLost)
		discard(resp)
	}
}

// hedge sends the second attempt, if the Caller allows one.
func (t *retrier) hedge(r *race, req *http.Request, c *call, cancelFirst context.CancelCauseFunc) {
	r.mu.Lock()
	if r.over {
		r.mu.Unlock()
		return
	}
	second, err := rewound(req)
	if err != nil {
		r.mu.Unlock()
		return
	}
	p, ok := c.Hedge()
	if !ok {
		r.mu.Unlock()
		closeBody(second)
		return
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	r.hedged, r.cancel = make(chan struct{}), cancel
	r.mu.Unlock()

	second = second.WithContext(warden.WithPriority(ctx, p))
	resp, v, err := t.contained(req.Context(), second, c, p, cancel) //nolint:bodyclose // who wins returns it, and discard closes it
	r.mu.Lock()
	r.resp, r.v, r.err = resp, v, err
	lost := r.lost
	if !r.over && v.outcome == retry.Accepted {
		r.won = true
		cancelFirst(errLost)
	}
	r.mu.Unlock()
	close(r.hedged)
	if lost {
		discard(resp)
	}
}

// contained sends and reports the hedge req of a request with context ctx, with a panic turned into an error: on this goroutine
// it would end the program.
func (t *retrier) contained(
	ctx context.Context, req *http.Request, c *call, p decision.Priority, cancel context.CancelCauseFunc,
) (resp *http.Response, v result, err error) {
	defer func() {
		if of := recover(); of != nil {
			resp, v, err = nil, result{}, fmt.Errorf("wardenhttp: a panic in a hedge: %v", of)
		}
	}()
	resp, err = t.send(req, cancel)
	return resp, t.report(ctx, c, p, resp, err), err
}
