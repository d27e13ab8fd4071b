// SPDX-License-Identifier: Apache-2.0

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
	mu         sync.Mutex
	firstEnded bool          // the first attempt has ended: no hedge starts, and a running one does not cancel it
	hedged     chan struct{} // closed when the hedge has ended; nil: no hedge
	cancel     context.CancelCauseFunc
	hedgeWon   bool

	resp   *http.Response // the hedge's result, once hedged is closed
	result result
	err    error
}

// race sends the request, and a hedge if there is no answer after HedgeAfter. The first attempt runs on this goroutine. Only
// an answer ends the other attempt; a rejection does not. That one is over when race returns, the other when its answer has been
// read: what they read of the request, such as its body's bytes, is the caller's again then.
func (t *retrier) race(req *http.Request, c *call) (*http.Response, result, error) {
	r := &race{}
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(t.cfg.HedgeAfter, func() { t.hedge(r, req, c, cancel) })
	defer timer.Stop() // even if the base or Outcome panics
	returned := false
	defer func() {
		if !returned {
			discard(r.endHedge(true)) //nolint:bodyclose // discard closes it
		}
	}()
	trip, sent := tripOf(ctx, req).watch(req.WithContext(ctx))
	resp, err := t.send(lentTo(sent, cancel))
	v := t.report(req.Context(), trip, c, c.priority, resp, err)
	returned = true
	accepted := v.outcome == retry.Accepted
	second := r.endHedge(accepted)
	if r.hedged != nil && (r.hedgeWon || !accepted && r.result.outcome == retry.Accepted) {
		discard(resp)
		return second, r.result, r.err
	}
	discard(second)
	return resp, v, err
}

// endHedge records the end of the first attempt and waits for the hedge, which has lost if the first was answered before it.
func (r *race) endHedge(answered bool) *http.Response {
	r.mu.Lock()
	r.firstEnded = true
	hedged := r.hedged
	if hedged != nil && answered && !r.hedgeWon {
		r.cancel(errLost)
	}
	r.mu.Unlock()
	if hedged == nil {
		return nil
	}
	<-hedged // at the latest when the request's context ends
	return r.resp
}

// hedgeKey is the key of a hedge's context: Detach sends none.
type hedgeKey struct{}

// lentTo returns the request of one of two attempts, and a cancel with which its end, of no cause, ends its loan too: its base may go
// on reading a body for a while, as net/http's does over HTTP/2.
func lentTo(req *http.Request, cancel context.CancelCauseFunc) (*http.Request, context.CancelCauseFunc) {
	l := &loan{Context: req.Context(), caller: req}
	return l.request(l), func(cause error) {
		if cancel(cause); cause == nil {
			l.end()
		}
	}
}

// hedge sends the second attempt, if the Caller allows one.
func (t *retrier) hedge(r *race, req *http.Request, c *call, cancelFirst context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(req.Context())
	second, p := r.begin(req, c, cancel)
	if second == nil {
		cancel(nil)
		return
	}
	second = second.WithContext(context.WithValue(warden.WithPriority(ctx, p), hedgeKey{}, true))
	resp, v, err := t.sendHedge(req.Context(), second, c, p, cancel) //nolint:bodyclose // returned or discarded
	r.mu.Lock()
	r.resp, r.result, r.err = resp, v, err
	if !r.firstEnded && v.outcome == retry.Accepted {
		r.hedgeWon = true
		cancelFirst(errLost)
	}
	r.mu.Unlock()
	close(r.hedged)
}

// begin returns the second attempt, and its priority; nil: there is none, as when GetBody fails or panics.
func (r *race) begin(req *http.Request, c *call, cancel context.CancelCauseFunc) (second *http.Request, p decision.Priority) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.firstEnded || req.Context().Err() != nil {
		return nil, p
	}
	defer func() {
		if _ = recover(); r.hedged == nil {
			closeBody(second)
			second = nil
		}
	}()
	second, err := rewound(req)
	if err != nil {
		return second, p
	}
	p, ok := c.Hedge()
	if ok {
		r.hedged, r.cancel = make(chan struct{}), cancel
	}
	return second, p
}

// sendHedge sends and reports the hedge req of a request with context ctx, with a panic turned into an error: on this goroutine
// it would end the program.
func (t *retrier) sendHedge(
	ctx context.Context, req *http.Request, c *call, p decision.Priority, cancel context.CancelCauseFunc,
) (resp *http.Response, v result, err error) {
	defer func() {
		if of := recover(); of != nil {
			resp, v, err = nil, result{}, fmt.Errorf("wardenhttp: a panic in a hedge: %v", of)
		}
	}()
	trip, req := tripOf(ctx, req).watch(req)
	resp, err = t.send(lentTo(req, cancel))
	return resp, t.report(ctx, trip, c, p, resp, err), err
}
