// What a client is told: errors as responses, in the form of RFC 9457.

package wardenhttp

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/stopbank/stopbank/warden"
	"github.com/stopbank/stopbank/warden/bulkhead"
	"github.com/stopbank/stopbank/warden/limiter"
)

// WriteError answers with what err means to a client, if err is or wraps an error of this module's limiters and
// compartments, and reports whether it was: otherwise nothing is written. It is for handlers that ask for places
// themselves, and for the error handlers of proxies. It must be called before anything else was written. c is the
// compartment that was asked, nil if it was none: a tenant is told 429 where everybody else is told 503.
//
// The answer has the status by cause, Retry-After with a 503 and a 429, and a body of type application/problem+json with
// the members title, status, reason and, if a limiter refused, decision: the number of the decision that ruled. The table
// is in docs/wardenhttp.md. [Middleware.WriteError] answers as its Config says.
func WriteError(w http.ResponseWriter, c *bulkhead.Compartment, err error) bool {
	return answers{}.write(w, describe(c, err), err)
}

// WriteError is the function WriteError, with RetryAfter, Rand and Verbose of the middleware's Config.
func (m *Middleware) WriteError(w http.ResponseWriter, c *bulkhead.Compartment, err error) bool {
	return m.answers.write(w, describe(c, err), err)
}

// problem is the body (RFC 9457). It has no type: "about:blank" is meant, of which title is the status's phrase.
type problem struct {
	Title    string  `json:"title"`
	Status   int     `json:"status"`
	Reason   string  `json:"reason"`
	Decision *uint64 `json:"decision,omitempty"`
	Detail   string  `json:"detail,omitempty"`

	retryAfter time.Duration // as the limiter knows it
}

// statusClientClosed is what nginx calls a request whose client went away. Logs see it, and no client.
const statusClientClosed = 499

// internalError is the answer where no client can help.
func internalError() *problem {
	return &problem{Status: http.StatusInternalServerError, Reason: "internal"}
}

// describe is what a client may know of err, which c answered; nil: it is not ours.
func describe(c *bulkhead.Compartment, err error) *problem {
	var rejection *warden.Rejection
	var timeout *bulkhead.TimeoutError
	switch {
	case errors.As(err, &timeout):
		return (&problem{Status: http.StatusGatewayTimeout, Reason: "timeout_" + timeout.Phase.String()}).decidedBy(timeout.Rejection)
	case errors.Is(err, bulkhead.ErrBreakerOpen):
		return &problem{Status: http.StatusServiceUnavailable, Reason: "breaker_open"}
	case errors.As(err, &rejection):
		_, tenant := c.TenantKey()
		p := &problem{Status: statusOf(rejection.Reason, tenant), Reason: rejection.Reason.String(), retryAfter: rejection.RetryAfter}
		return p.decidedBy(rejection)
	}
	for _, mistake := range []error{warden.ErrInvalid, limiter.ErrInvalid, bulkhead.ErrInvalid, bulkhead.ErrUnknownCompartment, bulkhead.ErrReentry} {
		if errors.Is(err, mistake) {
			return internalError()
		}
	}
	return nil
}

func statusOf(r limiter.Reason, tenant bool) int {
	switch {
	case r == limiter.DeadlineExceeded:
		return http.StatusGatewayTimeout
	case r == limiter.Canceled:
		return statusClientClosed
	case tenant && r != limiter.Closed: // what one has used up, others still have
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// decidedBy notes the number of the decision that ruled.
func (p *problem) decidedBy(r *warden.Rejection) *problem {
	if r != nil && r.Decision != nil {
		p.Decision = &r.Decision.Seq
	}
	return p
}

// answers is how errors become responses.
type answers struct {
	retryAfter time.Duration
	rand       func() float64
	verbose    bool
}

// write answers with p, which is what a client may know of err; with nothing if p is nil.
func (a answers) write(w http.ResponseWriter, p *problem, err error) bool {
	if p == nil {
		return false
	}
	if p.Title = http.StatusText(p.Status); p.Status == statusClientClosed {
		p.Title = "Client Closed Request"
	}
	if a.verbose {
		p.Detail = err.Error()
	}
	h := w.Header()
	for _, ofContent := range []string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified", "Cache-Control"} {
		h.Del(ofContent) // of the content that somebody meant to send
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("X-Content-Type-Options", "nosniff")
	if slices.Contains([]int{http.StatusServiceUnavailable, http.StatusTooManyRequests}, p.Status) {
		h.Set("Retry-After", a.after(p.retryAfter))
	}
	body, _ := json.Marshal(p) // strings and numbers: it cannot fail
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // if it fails, nobody is left to be told
	return true
}

// after is the value of Retry-After: whole seconds (RFC 9110, 10.2.3), at least what the limiter knows and at most twice
// that, so that those who were refused together do not come back together.
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
