// SPDX-License-Identifier: Apache-2.0

// The client side: a rejected request is sent again if that is safe, within the retry budget and useful.

package wardenhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/inflight"
	"github.com/stopbank/stopbank/warden/internal/timelimit"
	"github.com/stopbank/stopbank/warden/internal/unit"
	"github.com/stopbank/stopbank/warden/retry"
)

// RetryConfig describes the transport of [NewRetry]. The zero value is ready to use. Its functions must be safe for concurrent
// use.
type RetryConfig struct {
	// Base sends each attempt; nil: [http.DefaultTransport]. With that of [NewTransport], each attempt acquires its own slot.
	Base http.RoundTripper
	// Repeatable reports whether a request may be processed twice. nil: if its method is idempotent (RFC 9110, 9.2.2) or it
	// has an Idempotency-Key. Other requests are sent again only if they were certainly not processed.
	Repeatable func(*http.Request) bool
	// Outcome returns what a response says about the host; usual is what [NewRetry] says, for the responses that it does not
	// decide otherwise. It must not use the body. nil: usual. It decides what the throttle counts, not what is retried.
	Outcome func(resp *http.Response, usual retry.Outcome) retry.Outcome
	// AttemptTimeout bounds an attempt until the header of its response has arrived, 1 ms or more; 0: only the request's context
	// bounds it. The error of an attempt that exceeds it matches context.DeadlineExceeded.
	AttemptTimeout time.Duration
	// HedgeAfter is how long a repeatable request waits for the header of its response before a hedge is sent, a second attempt
	// beside the first, 10 µs or more; 0: no hedges, as over [Detach], whose slot is one request at the upstream. The 95th percentile of that latency is the choice of Dean and Barroso
	// ("The Tail at Scale", 2013).
	HedgeAfter time.Duration
}

// retrier retries requests under the budget and throttle of a Caller.
type retrier struct {
	caller *retry.Caller
	cfg    RetryConfig
	base   http.RoundTripper // sends deadline and priority of contexts
}

// NewRetry returns a transport that retries requests under the budget and throttle of c, which counts each host (that of the
// request's URL) and each class of priority (that of the request's context, [warden.PriorityFrom]) by itself. The error, a
// [*warden.InvalidError], names the invalid argument.
//
// It sends a request with its context's remaining time and priority in headers, as the transport of [NewTransport] does, and
// retries it as below. A request that the throttle rejects is not sent: its body is closed and the error is
// [retry.ErrThrottled]. Otherwise RoundTrip returns the result of the last attempt, a rejection as the server wrote it; only if
// the request's context ends during the wait for the next attempt, it returns the context's error.
//
// An attempt has this outcome for the throttle; of several that fit, a Warden-Scope decides:
//
//   - [retry.Rejected]: the status is 503, or it is 429, 502 or 504 and the answer has the header Warden-Rejected; or no
//     connection could be made.
//   - [retry.Failed]: the status is 502 or 504 without that header, or it is one of these four and the answer has the header
//     Warden-Scope: compartment; or the connection broke, the stream was reset, or AttemptTimeout or the deadline has passed.
//   - [retry.Unknown]: the status is 429 without Warden-Rejected, most likely a quota, or it is one of these four and the
//     answer has Warden-Scope: tenant; or the request was canceled or not sent; or any other error, such as an invalid
//     certificate.
//   - [retry.Accepted]: any other status, 500 too.
//
// The four statuses, failed connections, broken ones and AttemptTimeout are retried; other results are not. An attempt was
// certainly not processed if its answer has one of the four statuses and the header Warden-Rejected, which [Middleware] sets, or
// if no connection could be made: then a request with any method is sent again, and otherwise only a Repeatable one.
//
// Each attempt's body is closed once. Before a retry, the previous response is read, up to 64 KiB and for 100 ms, and closed, so
// that its connection can be reused. A body can be sent again if the request has GetBody, which [http.NewRequest] sets for the
// usual readers. The request is not modified.
//
// The transport is safe for concurrent use. RoundTrip blocks for all attempts and the waits between them, and until Base has noticed
// that a hedge, or the attempt beside it, is canceled: no goroutine outlives it. A request that is sent once costs one small
// allocation, two more if its path has digits, two if a handler behind a [Middleware] sends a body, and a copy with headers if there
// are any to add; AttemptTimeout and HedgeAfter cost more.
func NewRetry(c *retry.Caller, cfg RetryConfig) (http.RoundTripper, error) {
	if c == nil {
		return nil, invalidField("NewRetry: the caller", "nil", "a caller made by retry.New")
	}
	if allowed := unit.Allowed(cfg.AttemptTimeout, unit.Network, 0, "0 (unlimited)"); allowed != "" {
		return nil, invalidField("RetryConfig.AttemptTimeout", cfg.AttemptTimeout, allowed)
	}
	if allowed := unit.Allowed(cfg.HedgeAfter, unit.Process, 0, "0 (no hedging)"); allowed != "" {
		return nil, invalidField("RetryConfig.HedgeAfter", cfg.HedgeAfter, allowed)
	}
	if err := checkBase("RetryConfig", cfg.Base); err != nil {
		return nil, err
	}
	if cfg.HedgeAfter > 0 && detaches(cfg.Base) {
		return nil, invalidField("RetryConfig.HedgeAfter", cfg.HedgeAfter, "0 (no hedging) over Detach, whose slot is one request at the upstream")
	}
	if cfg.Base == nil {
		cfg.Base = http.DefaultTransport
	}
	if cfg.Repeatable == nil {
		cfg.Repeatable = idempotent
	}
	r := &retrier{caller: c, cfg: cfg, base: cfg.Base}
	if _, ok := cfg.Base.(*transport); !ok { // which adds the headers itself
		r.base = headerSender{cfg.Base}
	}
	return r, nil
}

// detaches reports whether a transport is Detach's, or NewTransport's over it.
func detaches(of http.RoundTripper) bool {
	if t, ok := of.(*transport); ok {
		of = t.base
	}
	_, ok := of.(*detacher)
	return ok
}

// headerSender adds the headers for deadline and priority in front of a base that does not.
type headerSender struct{ base http.RoundTripper }

func (t headerSender) RoundTrip(req *http.Request) (*http.Response, error) {
	out, stranger, err := withHeaders(req.Context(), req)
	if err != nil {
		closeBody(req)
		return nil, err
	}
	return onTime{t.base, stranger}.RoundTrip(out)
}

// attemptTimeoutError reports that the last attempt got no answer within RetryConfig.AttemptTimeout.
type attemptTimeoutError struct{ after time.Duration }

// Error names the bound.
func (e *attemptTimeoutError) Error() string {
	return fmt.Sprintf("wardenhttp: no answer within the %s of an attempt", e.after)
}

// Unwrap returns context.DeadlineExceeded.
func (e *attemptTimeoutError) Unwrap() error { return context.DeadlineExceeded }

// Timeout returns true, as for a net.Error.
func (e *attemptTimeoutError) Timeout() bool { return true }

// RoundTrip sends the request, and sends it again where the rules allow it.
func (t *retrier) RoundTrip(req *http.Request) (*http.Response, error) {
	c, err := t.begin(req)
	if err != nil {
		return nil, err
	}
	deadline, strangers, _ := timelimit.Due(req.Context())
	for next := req; ; {
		resp, v, err := t.attempt(next, &c)
		if !v.again || !c.rewindable || !(v.unprocessed || c.repeatable) {
			return resp, err
		}
		if req.Context().Err() != nil {
			return resp, err
		}
		wait, ok := c.Retry(v.after, deadline)
		if !ok {
			if strangers && wait > 0 {
				timelimit.TooLate(req.Context(), deadline, true)
			}
			return resp, err
		}
		following, failed := rewound(req)
		if failed != nil {
			return resp, err
		}
		discard(resp)
		if err := pause(req.Context(), wait); err != nil {
			closeBody(following)
			return nil, err
		}
		next = following
	}
}

// call is one request with all its attempts.
type call struct {
	retry.Call
	priority   decision.Priority
	rewindable bool // its body can be sent again
	repeatable bool // rewindable, and may be processed twice
}

// begin asks for the first attempt. On failure, a panic included, it closes the request's body, as a RoundTripper must.
func (t *retrier) begin(req *http.Request) (c call, err error) {
	begun := false
	defer func() {
		if !begun {
			closeBody(req)
		}
	}()
	if req == nil {
		return c, noRequest()
	}
	c.priority = warden.PriorityFrom(req.Context())
	c.rewindable = req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
	c.repeatable = c.rewindable && t.cfg.Repeatable(req)
	c.Call, err = t.caller.Begin(target(req, c.priority))
	begun = err == nil
	return c, err
}

// CloseIdleConnections closes the base's; http.Client calls it.
func (t *retrier) CloseIdleConnections() { closeIdle(t.cfg.Base) }

// attempt sends one request, perhaps with a hedge, and reports the results to the Caller.
func (t *retrier) attempt(req *http.Request, c *call) (*http.Response, result, error) {
	if t.cfg.HedgeAfter > 0 && c.repeatable {
		return t.race(req, c)
	}
	ctx := req.Context()
	trip, req := tripOf(ctx, req).watch(req)
	var resp *http.Response
	var err error
	if t.cfg.AttemptTimeout == 0 {
		resp, err = t.base.RoundTrip(req)
	} else {
		inner, cancel := context.WithCancelCause(ctx)
		resp, err = t.send(req.WithContext(inner), cancel)
	}
	return resp, t.report(ctx, trip, c, c.priority, resp, err), err
}

// report classifies the result of an attempt sent with priority p, and reports it to the Caller. It closes the response if
// Outcome panics, because it is not returned then.
func (t *retrier) report(ctx context.Context, trip trip, c *call, p decision.Priority, resp *http.Response, err error) result {
	v := classifyAttempt(ctx, trip, resp, err)
	outcome := v.outcome
	if t.cfg.Outcome != nil && err == nil && resp != nil {
		decided := false
		defer func() {
			if !decided {
				discard(resp)
			}
		}()
		outcome = t.cfg.Outcome(resp, outcome)
		decided = true
	}
	c.Ended(p, outcome)
	return v
}

// send sends one attempt, whose context cancel ends: when another attempt has won, after AttemptTimeout, and when nothing
// more can arrive. In the first two cases the cause is the error.
func (t *retrier) send(req *http.Request, cancel context.CancelCauseFunc) (*http.Response, error) {
	late := &attemptTimeoutError{t.cfg.AttemptTimeout}
	inTime := func() bool { return true }
	if t.cfg.AttemptTimeout > 0 {
		inTime = time.AfterFunc(t.cfg.AttemptTimeout, func() { cancel(late) }).Stop
	}
	defer inTime()
	trip, req := tripOf(req.Context(), req).watch(req)
	resp, err := inflight.RoundTrip(canceling(cancel), t.base, req)
	if err == nil && inTime() {
		return resp, nil
	}
	if cause := context.Cause(req.Context()); errors.Is(cause, late) || errors.Is(cause, errLost) {
		discard(resp)
		return nil, trip.end(nil, cause)
	}
	return resp, err
}

// canceling releases an attempt's context at its end.
type canceling context.CancelCauseFunc

// End frees the context.
func (c canceling) End(inflight.Outcome) { c(nil) }

// rewound returns the request with its body rewound. The caller owns the body.
func rewound(req *http.Request) (*http.Request, error) {
	again := req.WithContext(req.Context())
	if req.Body == nil || req.Body == http.NoBody {
		return again, nil
	}
	body, err := req.GetBody()
	again.Body = body
	return again, err
}

func closeBody(req *http.Request) {
	if req != nil && req.Body != nil {
		_ = req.Body.Close() // the error to return is the reason for not sending
	}
}

// discard ends an unused response. It reads the rest if that is short and arrives at once, so that the connection can be
// reused.
func discard(resp *http.Response) {
	const most, longest = 64 << 10, 100 * time.Millisecond
	if resp == nil || resp.Body == nil {
		return
	}
	end := sync.OnceFunc(func() { _ = resp.Body.Close() })
	timer := time.AfterFunc(longest, end)
	_, _ = io.CopyN(io.Discard, resp.Body, most) // the body is closed in any case
	timer.Stop()
	end()
}

// pause waits for d or until the context ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// errLost is the cancellation cause of the slower of two attempts.
var errLost = errors.New("wardenhttp: another attempt was answered first")
