// SPDX-License-Identifier: Apache-2.0

// Errors as HTTP responses, in the form of RFC 9457.

package wardenhttp

import (
	"cmp"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/decision"
	"github.com/stopbank/stopbank/warden/internal/requestid"
	"github.com/stopbank/stopbank/warden/internal/rpcstatus"
	"github.com/stopbank/stopbank/warden/internal/wire"
	"github.com/stopbank/stopbank/warden/retry"
)

// WriteError answers a request with err, if w is not nil and err is or wraps an error of this module's limiters and
// compartments, or [retry.ErrThrottled] of an outgoing call. It reports whether it did; otherwise it writes nothing. Use
// it in handlers that acquire slots themselves and in the error handlers of proxies. Call it before writing anything else. Like
// [http.Error], it keeps a Content-Encoding if something wraps the writer, because that may be a compressor's. c
// is the compartment that returned err, nil if none: a tenant that has used up its share gets 429 where other callers get 503.
//
// If w is that of a handler behind a [Middleware], or unwraps to it as [http.ResponseController] does, WriteError answers as
// that middleware, with the ID of its request. Once the request's context has ended, it also answers a context's error: 504 if
// the request's deadline has passed, 499 if the client left.
//
// The answer has a status by cause, Retry-After with a 503 and a 429, and a body of type application/problem+json with the
// members title, status, reason and, if a limiter rejected under a numbered decision, decision: its number. If err has a
// request ID (see [warden.WithRequestID]), it is in the member request_id and in the header X-Request-Id. With Config.Instance,
// the member server_instance has it. docs/reasons.md has the table of statuses. [Middleware.WriteError] answers as its Config
// says.
//
// The header Warden-Scope is "tenant" if c rejected because one tenant has used up its share, and "compartment" if c itself has,
// or its breaker is open: the throttle of a client then goes on sending the requests of others. A [Middleware] that rejects a
// request answers the same, and adds the header Warden-Rejected with the reason: no handler has seen the request, so a client
// may send it again whatever its method. WriteError never adds that header, because a handler has begun.
func WriteError(w http.ResponseWriter, c *bulkhead.Compartment, err error) bool {
	e := exchangeOf(w)
	if e == nil {
		return answers{}.answer(w, nil, c, err)
	}
	return e.m.answers.answer(w, e, c, err)
}

// WriteError is the function WriteError, with RetryAfter, Instance and Verbose of the middleware's Config.
func (m *Middleware) WriteError(w http.ResponseWriter, c *bulkhead.Compartment, err error) bool {
	if m == nil {
		return WriteError(w, c, err)
	}
	return m.answers.answer(w, exchangeOf(w), c, err)
}

// problem is the content of the body (RFC 9457). Without a type member, "about:blank" applies, whose title is the status's
// phrase.
type problem struct {
	status     int
	reason     string
	decision   *decision.ControlDecision // in force; nil: none
	retryAfter time.Duration             // the limiter's estimate
	requestID  string                    // from err
}

// canceled is the answer to a request whose client left.
func canceled() problem {
	return problem{status: statusClientClosed, reason: string(decision.Canceled)}
}

// statusClientClosed is nginx's status for a client that disconnected. Only logs see it.
const statusClientClosed = 499

// serverError is the answer to an error that no client can fix: reason names the server's error, as gRPC's status does.
func serverError(reason string) problem {
	return problem{status: http.StatusInternalServerError, reason: reason}
}

// timeoutRunning is the answer to a request whose deadline passed while its handler ran.
func timeoutRunning() problem {
	return problem{status: http.StatusGatewayTimeout, reason: string(bulkhead.TimedOut)}
}

// problemOf returns the public part of err, which c returned; false: err is not of this module.
func problemOf(c *bulkhead.Compartment, err error) (problem, bool) {
	if r, ok := err.(*warden.Rejection); ok { //nolint:errorlint // the usual, unwrapped case: errors.As below finds others
		return rejectionProblem(c, r), true
	}
	var rejection *warden.Rejection
	var timeout *bulkhead.TimeoutError
	switch {
	case errors.Is(err, ErrSlowPeer):
		return slowPeer(), true
	case errors.As(err, &rejection): // before its cause, which may be a TimeoutError
		return rejectionProblem(c, rejection), true
	case errors.As(err, &timeout):
		p := timeoutRunning()
		p.requestID = timeout.RequestID
		return p, true
	case errors.Is(err, retry.ErrThrottled):
		return problem{status: http.StatusServiceUnavailable, reason: rpcstatus.Throttled}, true
	}
	s, known := rpcstatus.Of(c, err)
	return serverError(s.Reason), known
}

func rejectionProblem(c *bulkhead.Compartment, r *warden.Rejection) problem {
	return problem{statusOf(r.Reason, rpcstatus.OfTenant(c, r)), string(r.Reason), r.Decision, r.RetryAfter, r.Task.ID}
}

func statusOf(r decision.RejectionReason, tenant bool) int {
	switch {
	case r == decision.DeadlineExceeded, r == bulkhead.TimeoutQueued:
		return http.StatusGatewayTimeout
	case r == decision.Canceled:
		return statusClientClosed
	case tenant: // the others still have slots, or places to wait
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// answers writes errors as responses.
type answers struct {
	retryAfter  time.Duration
	rand        func() float64
	instance    string // Config.Instance as JSON; "": not sent
	verbose     bool
	unprocessed bool      // no handler has seen the request: the client may retry
	requestID   string    // "": take that of err
	said        wire.Said // by the request
}

// answer answers with the public part of err, which c returned in the handler of e, and reports whether err is of this module or
// says that the request of e has ended. e is nil if there is no handler yet, or none behind a middleware.
func (a answers) answer(w http.ResponseWriter, e *exchange, c *bulkhead.Compartment, err error) bool {
	if w == nil {
		return false
	}
	p, known := problemOf(c, err)
	if e != nil {
		if !known {
			p, known = e.answerToEnd(err)
		}
		p.requestID, a.said = cmp.Or(p.requestID, requestid.From(e.slot.Ctx)), e.said
	}
	if known {
		switch {
		case wraps(w):
		case e != nil:
			e.restoreEncoding(w.Header()) // a Buffered answer has headers of its own
		case !a.unprocessed: // a rejection comes before any handler
			delete(w.Header(), "Content-Encoding")
		}
		setScope(w.Header(), c, err)
		a.write(w, p, err)
	}
	return known
}

// wraps reports whether w may be a wrapper: it is neither an exchange's nor a server's, which has deadlines.
func wraps(w http.ResponseWriter) bool {
	if _, ours := w.(interface{ exchangeOf() *exchange }); ours {
		return false
	}
	_, unwraps := w.(interface{ Unwrap() http.ResponseWriter })
	_, bounds := w.(interface{ SetReadDeadline(time.Time) error })
	return unwraps || !bounds
}

// setScope says in a header if c rejected for the sake of one tenant or compartment: a client's throttle must not reject the
// others' requests for it (R8).
func setScope(h http.Header, c *bulkhead.Compartment, err error) {
	if of := rpcstatus.ScopeOf(c, err); of != "" {
		h[rpcstatus.ScopeHTTP] = []string{of}
	}
}

// write answers with p, the public part of err. An overloaded server does this more often than anything else, so the headers
// are set by their canonical names; their values are one allocation, the body another.
func (a answers) write(w http.ResponseWriter, p problem, err error) {
	h, values := w.Header(),
		[...]string{"application/problem+json", "nosniff", p.reason, "", cmp.Or(a.requestID, p.requestID), "no-store"}
	forget(h, a.said)
	h["Cache-Control"] = values[5:6:6]
	h["Content-Type"], h["X-Content-Type-Options"] = values[0:1:1], values[1:2:2]
	if p.status == http.StatusServiceUnavailable || p.status == http.StatusTooManyRequests {
		values[3] = a.after(p.retryAfter)
		h["Retry-After"] = values[3:4:4]
	}
	if a.unprocessed {
		h[rpcstatus.RejectedHTTP] = values[2:3:3]
	}
	if p.requestID = values[4]; requestid.Valid(p.requestID) {
		h[requestid.HTTP] = values[4:5:5]
	} else {
		p.requestID = ""
	}
	w.WriteHeader(p.status)
	_, _ = w.Write(a.body(p, err)) // on failure the client is gone
}

// body returns p as JSON. Title and reason are fixed words of net/http and of this module, and a valid ID has no character to
// escape.
func (a answers) body(p problem, err error) []byte {
	title := http.StatusText(p.status)
	if p.status == statusClientClosed {
		title = "Client Closed Request"
	}
	b := append(make([]byte, 0, 192+len(a.instance)), `{"title":"`...)
	b = append(b, title...)
	b = strconv.AppendInt(append(b, `","status":`...), int64(p.status), 10)
	b = append(append(append(b, `,"reason":"`...), p.reason...), '"')
	if p.decision != nil && p.decision.Seq > 0 { // 0: nothing was decided yet
		b = strconv.AppendUint(append(b, `,"decision":`...), p.decision.Seq, 10)
	}
	if p.requestID != "" {
		b = append(append(append(b, `,"request_id":"`...), p.requestID...), '"')
	}
	if a.instance != "" {
		b = append(append(b, `,"server_instance":`...), a.instance...)
	}
	if a.verbose {
		detail, _ := json.Marshal(detailOf(err)) // a string: it cannot fail
		b = append(append(b, `,"detail":`...), detail...)
	}
	return append(b, "}\n"...)
}

// detailOf returns the whole explanation of err.
func detailOf(err error) string {
	var rejection *warden.Rejection
	if errors.As(err, &rejection) {
		return rejection.String()
	}
	return err.Error()
}

// after returns the value of Retry-After in whole seconds (RFC 9110, 10.2.3): at least the limiter's estimate and at most
// twice that, so that clients rejected together do not return together.
func (a answers) after(known time.Duration) string {
	draw := a.rand
	if draw == nil {
		draw = rand.Float64
	}
	d := known
	if d <= 0 {
		d = a.retryAfter
	}
	seconds := max(1, (d+time.Second-1)/time.Second)
	return strconv.FormatInt(int64(seconds)+int64(draw()*float64(seconds+1)), 10)
}
