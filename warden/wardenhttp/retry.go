// The client's side: a request that was refused is sent again, if that is safe, affordable and of use.

package wardenhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/stopbank/stopbank/admission/admissionhttp/inflight"
	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/retry"
)

// RetryConfig describes a [Retry]. The zero value is ready to use. Its functions are called by many goroutines at once.
type RetryConfig struct {
	// Base sends each attempt, such as a [Transport], which then asks for a place for each; nil: [http.DefaultTransport].
	Base http.RoundTripper
	// Priority says how much a request matters: refusals are counted for each priority by itself. nil: what its
	// context says ([warden.PriorityFrom]).
	Priority func(*http.Request) warden.Priority
	// Repeatable says whether a request may be processed twice. nil: if its method is idempotent (RFC 9110, 9.2.2) or it has an
	// Idempotency-Key. All others are sent again only if they were certainly not processed.
	Repeatable func(*http.Request) bool
	// AttemptTimeout is how long an attempt may take until the header of its response has come, 0 or more; 0: as long as the
	// request's context lets it.
	AttemptTimeout time.Duration
	// HedgeAfter is how long a repeatable request waits for the header of its response before a second one is sent beside it, 0 or
	// more; 0: none is. The 95th percentile of how long they take is a usual choice.
	HedgeAfter time.Duration
}

// Retry is an [http.RoundTripper] that sends requests again under the rules of a [retry.Caller]. It may be used by any number of
// goroutines, and must come from [NewRetry]: the zero Retry sends nothing.
type Retry struct {
	caller *retry.Caller
	cfg    RetryConfig
	base   http.RoundTripper // says what contexts know
}

// NewRetry returns a Retry that asks c. One Caller for each dependency: what one refuses says nothing about another. The error, a
// [*warden.InvalidError], names the argument that is wrong.
func NewRetry(c *retry.Caller, cfg RetryConfig) (*Retry, error) {
	switch {
	case c == nil:
		return nil, &warden.InvalidError{Field: "c", Value: "nil", Allowed: "a caller made by retry.New"}
	case cfg.AttemptTimeout < 0:
		return nil, &warden.InvalidError{Field: "wardenhttp.RetryConfig.AttemptTimeout", Value: cfg.AttemptTimeout, Allowed: "0 (none) or more"}
	case cfg.HedgeAfter < 0:
		return nil, &warden.InvalidError{Field: "wardenhttp.RetryConfig.HedgeAfter", Value: cfg.HedgeAfter, Allowed: "0 (none) or more"}
	}
	if cfg.Base == nil {
		cfg.Base = http.DefaultTransport
	}
	if cfg.Priority == nil {
		cfg.Priority = func(r *http.Request) warden.Priority { return warden.PriorityFrom(r.Context()) }
	}
	if cfg.Repeatable == nil {
		cfg.Repeatable = idempotent
	}
	r := &Retry{caller: c, cfg: cfg, base: cfg.Base}
	if _, tells := cfg.Base.(*Transport); !tells {
		r.base = telling{cfg.Base}
	}
	return r, nil
}

// telling is a base that does not say what its requests' contexts know.
type telling struct{ base http.RoundTripper }

func (t telling) RoundTrip(req *http.Request) (*http.Response, error) {
	out, err := tell(req.Context(), req)
	if err != nil {
		closeBody(req)
		return nil, err
	}
	return t.base.RoundTrip(out)
}

// AttemptTimeoutError says that the last attempt got no answer within RetryConfig.AttemptTimeout. errors.Is(err, context.DeadlineExceeded) holds.
type AttemptTimeoutError struct{ After time.Duration }

// Error names the bound.
func (e *AttemptTimeoutError) Error() string {
	return fmt.Sprintf("wardenhttp: no answer within the %s of an attempt", e.After)
}

// Unwrap is context.DeadlineExceeded.
func (e *AttemptTimeoutError) Unwrap() error { return context.DeadlineExceeded }

// Timeout is true: it is a net.Error's.
func (e *AttemptTimeoutError) Timeout() bool { return true }

// RoundTrip sends the request, with what its context knows (the time that is left and the priority, as a [Transport] does), and again while docs/retries.md says so. A request that the throttle refuses is not sent: its body is closed
// and the error is a [*retry.ThrottledError]. Otherwise what is returned is what the last attempt came to, a refusal as the
// server wrote it; only if the request's context ends while it waits for the next attempt, it is the context's error.
//
// Each attempt's body is closed once, and the response of an attempt that is followed by another one is read, up to 64 KiB and for a tenth of a
// second, and closed first, so that its connection serves again. A body can be sent again if the request has GetBody, as
// [http.NewRequest] sets it for the usual readers. The request is not modified.
//
// RoundTrip blocks as long as the attempts and the waits between them do. No goroutine outlives it but that of a hedge that lost, until the base
// has noticed that it was canceled. A request that is sent once costs one small allocation, unless AttemptTimeout or HedgeAfter is set.
func (t *Retry) RoundTrip(req *http.Request) (*http.Response, error) {
	c, err := t.begin(req)
	if err != nil {
		return nil, err
	}
	deadline, _ := req.Context().Deadline()
	for next := req; ; {
		resp, v, err := t.attempt(next, &c)
		if !v.again || !c.rewindable || !(v.unprocessed || c.repeatable) {
			return resp, err
		}
		wait, ok := c.Retry(v.after, deadline)
		if !ok {
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

// call is one request in all its attempts.
type call struct {
	retry.Call
	priority   warden.Priority
	rewindable bool // its body can be sent once more
	repeatable bool // it is, and the request may be processed twice
}

// begin asks for the first attempt. If there is none, however that comes, it closes the request's body, as a RoundTripper must.
func (t *Retry) begin(req *http.Request) (c call, err error) {
	begun := false
	defer func() {
		if !begun {
			closeBody(req)
		}
	}()
	switch {
	case t == nil || t.caller == nil:
		return c, notMade("Retry", "wardenhttp.NewRetry")
	case req == nil:
		return c, noRequest()
	}
	c.priority = t.cfg.Priority(req)
	c.rewindable = req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
	c.repeatable = c.rewindable && t.cfg.Repeatable(req)
	c.Call, err = t.caller.Begin(c.priority)
	begun = err == nil
	return c, err
}

// CloseIdleConnections closes the idle connections of the base, if it knows how to; http.Client calls it.
func (t *Retry) CloseIdleConnections() {
	if t == nil {
		return
	}
	if c, ok := t.cfg.Base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// attempt sends one request, perhaps with a hedge beside it, and tells the caller how each ended.
func (t *Retry) attempt(req *http.Request, c *call) (*http.Response, verdict, error) {
	if t.cfg.HedgeAfter > 0 && c.repeatable {
		return t.race(req, c)
	}
	ctx := req.Context()
	var resp *http.Response
	var err error
	if t.cfg.AttemptTimeout == 0 {
		resp, err = t.base.RoundTrip(req)
	} else {
		inner, cancel := context.WithCancelCause(ctx)
		resp, err = t.send(req.WithContext(inner), cancel)
	}
	v := judge(ctx, resp, err)
	c.Ended(c.priority, v.outcome)
	return resp, v, err
}

// send sends one attempt whose context is canceled by cancel: when another one has won, after AttemptTimeout, and when nothing more can come of
// it. The first two are the error.
func (t *Retry) send(req *http.Request, cancel context.CancelCauseFunc) (*http.Response, error) {
	late := &AttemptTimeoutError{t.cfg.AttemptTimeout}
	inTime := func() bool { return true }
	if t.cfg.AttemptTimeout > 0 {
		inTime = time.AfterFunc(t.cfg.AttemptTimeout, func() { cancel(late) }).Stop
	}
	defer inTime()
	resp, err := inflight.RoundTrip(canceling(cancel), t.base, req)
	if err == nil && inTime() {
		return resp, nil
	}
	if cause := context.Cause(req.Context()); errors.Is(cause, late) || errors.Is(cause, errLost) {
		discard(resp)
		return nil, cause
	}
	return resp, err
}

// canceling is what an attempt holds: its context.
type canceling context.CancelCauseFunc

// End frees the context.
func (c canceling) End(inflight.Outcome) { c(nil) }

// rewound is the request with its body from the beginning. Whoever sends it closes the body.
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
		_ = req.Body.Close() // what is returned is why it is not sent
	}
}

// discard ends a response that nobody will see. What is left of it is read, so that its connection can be used again, if it is little and comes
// at once.
func discard(resp *http.Response) {
	const most, longest = 64 << 10, 100 * time.Millisecond
	if resp == nil || resp.Body == nil {
		return
	}
	end := sync.OnceFunc(func() { _ = resp.Body.Close() })
	timer := time.AfterFunc(longest, end)
	_, _ = io.CopyN(io.Discard, resp.Body, most) // whatever comes of it, the body is closed
	timer.Stop()
	end()
}

// pause waits, unless the context ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// errLost is why the slower of two attempts is canceled.
var errLost = errors.New("wardenhttp: another attempt was answered first")
